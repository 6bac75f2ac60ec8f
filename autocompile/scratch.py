"""Floor 1: temporary directories that do not outlive what made them, however it ended. No torch.

Each holds a file that its owner keeps locked. The system lets go of the lock when the owner ends, also when it is
killed, so whoever can take the lock knows that the directory is left over. A process number would not tell: it may be
another process's by now, or one of another container's that shares the directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

try:
    _fcntl: Any = import_module("fcntl")
except ImportError:  # not a POSIX system: nothing is ever taken for left over there
    _fcntl = None

PREFIX, OWNER = "autocompile-", ".owner"


class Scratch:
    """A temporary directory that only this user may enter.

    It is removed when nothing holds this object any more, when it is closed, and at exit; not by a forked child,
    which holds a copy. What a killed process left is removed by `sweep`.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.close = weakref.finalize(self, _remove, self.path, _own(self.path), os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write files, by their paths within it."""
        for path, data in contents.items():
            target = self.path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def sweep() -> None:
    """Remove the directories of this kind, in the system's temporary one, whose owners have ended."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False) and _is_mine(entry):
                _remove_if_left(Path(entry.path))


def claim(path: Path) -> int | None:
    """Lock the file at `path`, made if need be, until the descriptor is closed; None if another has it locked.

    Raises OSError if it cannot be made.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if _lock(descriptor) == "taken":
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # whoever had it locked has removed it meanwhile


def clear(directory: Path, owner: str) -> None:
    """Remove all that lies in `directory`, but for the file `owner`. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        for entry in list(directory.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != owner:
                with contextlib.suppress(OSError):
                    entry.unlink()


def _own(directory: Path) -> int | None:
    """The descriptor of the locked file, which gets its name only when it is locked."""
    unnamed = directory / f"{OWNER}.part"
    try:
        descriptor = claim(unnamed)
        os.replace(unnamed, directory / OWNER)
    except OSError:
        return None
    return descriptor


def _remove(directory: Path, descriptor: int | None, owner: int) -> None:
    if os.getpid() != owner:
        return
    clear(directory, OWNER)
    # Last, so that a directory with something left in it is still known as one of ours: the next sweep tries again.
    with contextlib.suppress(OSError):
        if all(left.name == OWNER for left in directory.iterdir()):
            shutil.rmtree(directory, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


def _remove_if_left(directory: Path) -> None:
    try:
        descriptor = os.open(directory / OWNER, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # no owner's file: not one of ours, or one that is just being made
        return
    if _lock(descriptor) == "ours":
        _remove(directory, descriptor, os.getpid())
    else:
        os.close(descriptor)


def _lock(descriptor: int) -> Literal["ours", "taken", "unknown"]:
    """Whose it is now; `unknown` where nothing can be locked, as on some network file systems."""
    if _fcntl is None:
        return "unknown"
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        return "taken"
    except OSError:
        return "unknown"
    return "ours"


def _is_mine(entry: os.DirEntry[str]) -> bool:
    return not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()
