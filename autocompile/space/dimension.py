"""The type of a dimension: one thing that can be varied, declared as data and four small functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.core.serde import Record
from autocompile.space.surroundings import Surroundings


class Choice(Record, frozen=True):
    """One value of a dimension; `unavailable` is the reason why it cannot be tried here, or "".

    The agent tries a remedy only after a failure that it may avoid (`Kind.remedy`).
    """

    value: Value
    unavailable: str = ""
    is_remedy: bool = False


Values = Mapping[str, Value]


def _always(_values: Values) -> bool:
    return True


def _no_conflict(_values: Values, _around: Surroundings) -> str:
    return ""


@dataclass(frozen=True)
class Dimension:
    """One thing that can be varied.

    `choices` lists its values here, the default first; `fold` adds a value's meaning to a plan; `applies` tells from
    the values of earlier dimensions whether the dimension has any effect (if not, it takes its default and is not
    searched); `conflict` returns why values that are each possible cannot be combined, or "". `after` names the
    dimension that it follows; by default a runtime's own dimensions come before those that all runtimes share.
    """

    name: str
    meaning: str
    choices: Callable[[Surroundings], tuple[Choice, ...]]
    fold: Callable[[Plan, Value, Surroundings], Plan]
    applies: Callable[[Values], bool] = _always
    conflict: Callable[[Values, Surroundings], str] = _no_conflict
    after: str = ""
