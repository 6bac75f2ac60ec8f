"""Refuse changes to the user's files that bypass the view.

Python calls audit hooks before such a change. A hook cannot be removed while the process lives. Therefore there is only
one hook, which does something only while a view is active.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

from autocompile.workload.watching.overlay.changes import writes
from autocompile.workload.watching.overlay.view import View, real

Heard = dict[str, Callable[..., None]]
_REASON = (
    "the script is only being watched, and this would change a file of yours in a way that cannot be redirected."
    " Use open() or a function of os"
)
# The positions of the path, and of its directory's descriptor if there is one, in an event's arguments.
_PLACES: dict[str, list[tuple[int, int | None]]] = {
    "os.chmod": [(0, 2)],
    "os.chown": [(0, 3)],
    "os.link": [(1, 3)],
    "os.mkdir": [(0, 2)],
    "os.remove": [(0, 1)],
    "os.removexattr": [(0, None)],
    "os.rename": [(0, 2), (1, 3)],
    "os.rmdir": [(0, 1)],
    "os.setxattr": [(0, None)],
    "os.symlink": [(1, 2)],
    "os.truncate": [(0, None)],
    "os.utime": [(0, 3)],
}
_heard: list[Heard] = []
_hooked: list[Any] = []


def listen(heard: Heard) -> None:
    """Call these functions with the arguments of the events of the same names, until `leave`."""
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(_hook)
    _heard.append(heard)


def leave() -> None:
    """Stop calling the functions."""
    _heard.clear()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _heard and (call := _heard[0].get(event)):
        call(*arguments)


def refusals(view: View) -> Heard:
    """Return, for each event that changes a file, a function that raises PermissionError for the user's files."""

    def opened(path: Any, _: Any, flags: int) -> None:
        if not isinstance(path, int) and writes(flags):
            _check(view, path)

    def changed(event: str) -> Callable[..., None]:
        def check(*arguments: Any) -> None:
            for number, directory in _PLACES[event]:
                _check(view, arguments[number], -1 if directory is None else arguments[directory])

        return check

    def connected(database: Any) -> None:
        if database != ":memory:" and database and not str(database).startswith("file:"):
            _check(view, database)

    return {"open": opened, "sqlite3.connect": connected, **{event: changed(event) for event in _PLACES}}


def _check(view: View, path: Any, directory: int = -1) -> None:
    if isinstance(path, int):
        place = str(real.readlink(f"/proc/self/fd/{path}"))
    else:
        base = real.getcwd() if directory < 0 else real.readlink(f"/proc/self/fd/{directory}")
        place = os.path.join(base, os.fsdecode(path))  # noqa: PTH118
    if place.startswith(f"{view.scratch}/"):
        return
    resolved, _ = view.located(place)
    if not view.is_free(resolved) and not _is_special(resolved):
        raise PermissionError(errno.EACCES, _REASON, path)


def _is_special(place: str) -> bool:
    """Return whether this is a pipe, a socket or a terminal: writing to it overwrites nothing."""
    try:
        mode = real.stat(place).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
