"""Statistics on how a recommendation served a model in a running script."""

from __future__ import annotations

from autocompile.core.serde import Record
from autocompile.core.words import WorkloadKind


class Service(Record, frozen=True):
    """Statistics for one module of a script.

    Attributes:
        module: The name of the module.
        label: The configuration that served it; "" if nothing was served.
        calls: The number of calls (or training steps, see `kind`) that were served, by runtime.
        first_s: The time of the first one, loading or compiling included.
        mean_ms: The mean of the others, or null. A training step counts its calls of the model, its gradients and its
            update, and nothing else that the script does. Kind `closure` does not count the update.
        left: How many calls of the model were not made as recommended, by reason.
        notes: What else differs.
        kind: The unit of work.
    """

    module: str
    label: str
    calls: dict[str, int]
    first_s: float
    mean_ms: float | None
    left: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    kind: WorkloadKind = "inference"
