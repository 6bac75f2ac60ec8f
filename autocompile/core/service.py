"""How a recommendation served a model in a running script."""

from __future__ import annotations

from autocompile.core.serde import Record
from autocompile.core.words import WorkloadKind


class Service(Record, frozen=True):
    """One module of a script: `label` is the configuration that served it, "" if nothing was served.

    `calls` by the runtime that made them, of those that reached the recommendation; of a training (`kind`), its steps.
    `first_s`: the first one, loading or compiling included; `mean_ms`: the mean of the others, null where there are
    none; of a step, its calls of the model, gradients and update, and nothing else that the script does (of kind
    `closure` without the update, of which several calls of the closure are a part). `left`: how
    many calls of the model were not made as recommended, by reason. `notes` say what else differs.
    """

    module: str
    label: str
    calls: dict[str, int]
    first_s: float
    mean_ms: float | None
    left: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    kind: WorkloadKind = "inference"
