"""What a dimension is: one thing that can be varied, declared as data and four small functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autocompile.core.buckets import Buckets
from autocompile.core.candidate import Value
from autocompile.core.plan import AxisRange, Plan
from autocompile.core.profile import RepeatedBlock
from autocompile.core.serde import Record


@dataclass(frozen=True)
class Surroundings:
    """What the choices depend on: device, host and workload.

    `hottest`: the submodules that take most of a call, none within another, the hottest first; `breaking`: those
    in whose forward the graph breaks; `varying`: axes whose sizes differ between the samples; `buckets`: what calls may
    be filled up to, or None and `padding_problem`.
    """

    device_type: str
    cores: int
    is_module: bool
    has_conv: bool
    signature_count: int
    has_matrix_products: bool = True
    reduced_precision: bool = False
    blocks: tuple[RepeatedBlock, ...] = ()
    hottest: tuple[str, ...] = ()
    breaking: tuple[str, ...] = ()
    varying: tuple[AxisRange, ...] = ()
    buckets: Buckets | None = None
    padding_problem: str = ""
    compiler_problem: str = ""
    batches: tuple[int, ...] = ()


class Choice(Record, frozen=True):
    """One value of a dimension; `unavailable` is the reason why it cannot be tried here, or ""."""

    value: Value
    unavailable: str = ""


Values = Mapping[str, Value]


def _always(_values: Values) -> bool:
    return True


def _no_conflict(_values: Values, _around: Surroundings) -> str:
    return ""


@dataclass(frozen=True)
class Dimension:
    """One thing that can be varied.

    `choices` lists its values here, the default first; `fold` adds a value's meaning to a plan;
    `applies` tells from the values of earlier dimensions whether it means anything at all (if not, it
    takes its default and is not searched); `conflict` gives the reason why values that are each
    possible do not go together, or "".
    """

    name: str
    meaning: str
    choices: Callable[[Surroundings], tuple[Choice, ...]]
    fold: Callable[[Plan, Value, Surroundings], Plan]
    applies: Callable[[Values], bool] = _always
    conflict: Callable[[Values, Surroundings], str] = _no_conflict
