"""What is particular to a plan for `torch.compile`: its keywords, and what of the model it compiles. No torch."""

from __future__ import annotations

from typing import Any

import msgspec

from autocompile.core.buckets import Buckets
from autocompile.core.plan import AxisRange, Plan
from autocompile.core.serde import Record, to_plain
from autocompile.runtime.compiler_options import Option


class Settings(Record, frozen=True, omit_defaults=True):
    """The settings of a plan.

    `backend`: Dynamo's backend. `options`: the backend's own, sorted by key. `dynamic`: as `torch.compile` takes it;
    None lets it decide. `scope`: paths of the submodules that are compiled in place, or () for the whole model;
    `with_loss`: whether a training's loss is compiled with the model, as one program; `only_updates`: whether of a step
    the optimizer's part is compiled and nothing else. `left_eager`: of those that the
    compiler is to leave alone. `ranges`: axes that are marked as varying before anything is compiled for them.
    `buckets`: what calls are filled up to, or None. `recurrent`: whether RNNs, LSTMs and GRUs are compiled, which
    Dynamo leaves eager by default. `memory_budget`: of the activations that the compiler would keep for the backward
    pass, the share that it may keep; 1 leaves it to it.
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
    """The plan's settings."""
    return msgspec.convert(plan.settings, Settings)


def with_settings(plan: Plan, **changes: Any) -> Plan:
    """The plan with some of its settings changed."""
    changed = msgspec.structs.replace(settings_of(plan), **changes)
    return msgspec.structs.replace(plan, settings=to_plain(changed))


def compiled(**settings: Any) -> Plan:
    """A plan for `torch.compile` with these settings, and everything else as by default."""
    return with_settings(Plan(runtime="inductor"), **settings)
