"""Record where the phases of a unit of work begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from autocompile.core.step_profile import Phase
from autocompile.workload.step import Step

_Stamp = TypeVar("_Stamp")


@dataclass(frozen=True)
class Span(Generic[_Stamp]):
    """A phase, with the stamps of its start and its end."""

    phase: Phase
    start: _Stamp
    end: _Stamp


@contextmanager
def spans_of(step: Step, stamp: Callable[[], _Stamp]) -> Iterator[list[Span[_Stamp]]]:
    """Yield a list that is filled with the phases of the body's work when the body ends.

    The body must do the work once. The list stays empty if the work has no phases.
    """
    begun: list[tuple[Phase, _Stamp]] = []
    spans: list[Span[_Stamp]] = []
    with step.telling(lambda phase: begun.append((phase, stamp()))):
        yield spans
    ends = [*(start for _phase, start in begun[1:]), stamp()]
    spans.extend(Span(phase, start, end) for (phase, start), end in zip(begun, ends, strict=False))
