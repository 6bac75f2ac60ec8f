"""The machines of a run: which has room, which may measure, which are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from autocompile.core.outcome import Failure, Measurement
from autocompile.core.runner import MachineEntry

# Beside those that compile: one that is measured, and one that is to be next.
_BEYOND_COMPILING = 2
# A machine whose baseline takes longer than this one's by more than such a share is not of its kind, whatever it says.
_SLOWER = 1.3
# One disturbed timing may be chance.
_DISTURBED = 2


class Machines:
    """Where candidates go. The first is home, which always may measure."""

    def __init__(self, entries: Sequence[MachineEntry]) -> None:
        self._entries = entries
        self._lost: set[int] = set()
        self._unfit: dict[int, str] = {}
        self._disturbed: Counter[int] = Counter()

    @property
    def names(self) -> tuple[str, ...]:
        """What each is called, home ""."""
        return tuple(entry.name for entry in self._entries)

    @property
    def here(self) -> list[int]:
        """Those that are not lost."""
        return [number for number in range(len(self._entries)) if number not in self._lost]

    def lanes(self, machine: int) -> int:
        """How many compile side by side there."""
        return self._entries[machine].lanes

    def free(self, compiling: Iterable[int], under_way: Iterable[int]) -> int | None:
        """The machine with most room for another candidate, by where others compile and are under way; None for none.

        With one lane, a machine does one candidate at a time.
        """
        compiles, has = Counter(compiling), Counter(under_way)

        def has_room(machine: int) -> bool:
            lanes = self.lanes(machine)
            if machine in self._unfit and has[0] >= self.lanes(0) + _BEYOND_COMPILING:
                return False  # home has enough to measure
            return compiles[machine] < lanes and has[machine] < (lanes + _BEYOND_COMPILING if lanes > 1 else 1)

        fitting = [machine for machine in self.here if has_room(machine)]
        return min(fitting, key=lambda machine: has[machine] / self.lanes(machine), default=None)

    def measures(self, machine: int) -> bool:
        """Whether what is measured there counts."""
        return machine in self.here and machine not in self._unfit

    def lose(self, machine: int) -> None:
        """It does not answer any more."""
        self._lost.add(machine)

    def judge(self, machine: int, measured: Measurement | Failure, baseline_ms: float) -> str:
        """Why nothing more is measured there from now on, told once, or ""; `baseline_ms` is what home's takes."""
        if not machine or machine in self._unfit or isinstance(measured, Failure):
            return ""
        self._disturbed[machine] += measured.contamination.noisy
        why = ""
        if measured.contamination.throttled:
            why = f"its GPU was slowed down ({measured.contamination.throttled})"
        elif measured.baseline.mean_ms > _SLOWER * baseline_ms > 0:
            why = f"the baseline takes {measured.baseline.mean_ms / baseline_ms:.2g} times as long there as here"
        elif self._disturbed[machine] >= _DISTURBED:
            why = "others use it"
        if why:
            self._unfit[machine] = why
        return why
