"""How many children may compile side by side on this machine, as users write it."""

from __future__ import annotations

from autocompile.core.errors import InvalidValue
from autocompile.host import usable_cores


def parse_workers(text: str | int, *, where: str = "workers") -> int:
    """The number in `"4"` or 4. Raises InvalidValue when it cannot be read, is below 1, or beyond the cores here."""
    is_number = isinstance(text, int) and not isinstance(text, bool)
    if not is_number and not (isinstance(text, str) and text.strip().isascii() and text.strip().isdigit()):
        raise InvalidValue(f"{text!r} is no number of workers", where=where, remedy="give one like 2")
    workers, cores = int(text), usable_cores()
    if workers < 1:
        raise InvalidValue(f"{workers} workers compile nothing", where=where, remedy="give 1 or more")
    if workers > cores:
        plural = "s" * (cores != 1)
        raise InvalidValue(
            f"{workers} workers are more than the {cores} core{plural} that this process may use",
            where=where,
            remedy=f"give at most {cores}",
        )
    return workers
