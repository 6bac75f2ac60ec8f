"""Where the phases of a unit of work begin and end."""

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
    """A phase, and what was stamped where it began and where it ended."""

    phase: Phase
    start: _Stamp
    end: _Stamp


@contextmanager
def spans_of(step: Step, stamp: Callable[[], _Stamp]) -> Iterator[list[Span[_Stamp]]]:
    """The phases of the work that is done once meanwhile; the list is filled when it is done, or stays empty."""
    begun: list[tuple[Phase, _Stamp]] = []
    spans: list[Span[_Stamp]] = []
    with step.telling(lambda phase: begun.append((phase, stamp()))):
        yield spans
    ends = [*(start for _phase, start in begun[1:]), stamp()]
    spans.extend(Span(phase, start, end) for (phase, start), end in zip(begun, ends, strict=False))
