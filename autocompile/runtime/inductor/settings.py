"""The part of a plan that is specific to `torch.compile`: its keywords, and which parts of the model it compiles.

Does not import torch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from autocompile.core.buckets import Buckets
from autocompile.core.plan import AxisRange, Plan
from autocompile.core.serde import Record, to_plain
from autocompile.runtime.compiler_options import Option


class Settings(Record, frozen=True, omit_defaults=True):
    """The settings of a plan.

    Attributes:
        backend: Dynamo's backend.
        options: The backend's own options, sorted by key.
        dynamic: As `torch.compile` takes it; None lets the compiler decide.
        scope: Paths of the submodules to compile in place, or () for the whole model.
        with_loss: Whether a training's loss is compiled together with the model, as one program.
        only_updates: Whether only the optimizer's part of a training step is compiled.
        left_eager: Paths of the submodules that the compiler leaves eager.
        ranges: Axes that are marked as varying before the compiler compiles for them.
        buckets: The sizes to which calls are padded, or None.
        recurrent: Whether RNNs, LSTMs and GRUs are compiled, which Dynamo leaves eager by default.
        memory_budget: The share of the activations that the compiler may keep for the backward pass, of those that it
            would keep by default.
    """

    backend: str = "inductor"
    options: dict[str, Option] = {}
    dynamic: bool | None = None
    scope: tuple[str, ...] = ()
    with_loss: bool = False
    only_updates: bool = False
    left_eager: tuple[str, ...] = ()
    ranges: tuple[AxisRange, ...] = ()
    buckets: Buckets | None = None
    recurrent: bool = False
    memory_budget: float = 1.0


def settings_of(plan: Plan) -> Settings:
    """Return the plan's settings."""
    return msgspec.convert(plan.settings, Settings)


def with_settings(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with some of its settings changed."""
    changed = msgspec.structs.replace(settings_of(plan), **changes)
    return msgspec.structs.replace(plan, settings=to_plain(changed))


def compiled(**settings: Any) -> Plan:
    """Return a plan for `torch.compile` with these settings and defaults for everything else."""
    return with_settings(Plan(runtime="inductor"), **settings)
