"""The machines of a run: which has room, which may measure, which are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from autocompile.core.outcome import Failure, Measurement
from autocompile.core.runner import MachineEntry

# In addition to the candidates that compile: one that is measured, and one that is next.
_BEYOND_COMPILING = 2
# If a machine's baseline takes longer than the first machine's by more than this factor, it does not measure.
_SLOWER = 1.3
# A single disturbed timing may be chance.
_DISTURBED = 2


class Machines:
    """The machines that candidates are sent to. The first one is home: it may always measure."""

    def __init__(self, entries: Sequence[MachineEntry]) -> None:
        self._entries = entries
        self._lost: set[int] = set()
        self._unfit: dict[int, str] = {}
        self._disturbed: Counter[int] = Counter()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each machine; "" for home."""
        return tuple(entry.name for entry in self._entries)

    @property
    def here(self) -> list[int]:
        """The numbers of the machines that are not lost."""
        return [number for number in range(len(self._entries)) if number not in self._lost]

    def lanes(self, machine: int) -> int:
        """Return how many candidates compile side by side there."""
        return self._entries[machine].lanes

    def free(self, compiling: Iterable[int], under_way: Iterable[int]) -> int | None:
        """Return the machine with the most room for another candidate; None if no machine has room.

        `compiling` and `under_way` hold the machine of each candidate that compiles, or is under way. A machine with
        one lane handles one candidate at a time.
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
        """Whether measurements on this machine count."""
        return machine in self.here and machine not in self._unfit

    def lose(self, machine: int) -> None:
        """Mark a machine as lost: it does not answer any more."""
        self._lost.add(machine)

    def judge(self, machine: int, measured: Measurement | Failure, baseline_ms: float) -> str:
        """Return why the machine measures nothing from now on, or ""; the reason is returned only once.

        `baseline_ms` is the baseline's time on the first machine.
        """
        if not machine or machine in self._unfit or isinstance(measured, Failure):
            return ""
        self._disturbed[machine] += measured.contamination.noisy
        why = ""
        if measured.contamination.throttled:
            why = f"its GPU was slowed down ({measured.contamination.throttled})"
        elif measured.baseline.mean_ms > _SLOWER * baseline_ms > 0:
            why = f"the baseline takes {measured.baseline.mean_ms / baseline_ms:.2g} times as long there as here"
        elif self._disturbed[machine] >= _DISTURBED:
            why = "other programs use it"
        if why:
            self._unfit[machine] = why
        return why
