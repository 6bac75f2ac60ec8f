"""Floor 1: temporary directories that are removed even if the process that created them was killed. No torch.

Each directory contains a file that its owner keeps locked. The system releases the lock when the owner ends, also when
it is killed. A process that can take the lock therefore knows that the directory is left over. A process id would not
be enough: it may have been reused, or belong to another container that shares the directory.
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
except ImportError:  # not a POSIX system: no directory is ever considered left over
    _fcntl = None

PREFIX, OWNER = "autocompile-", ".owner"


class Scratch:
    """A temporary directory that only this user may enter.

    It is removed when this object is closed or garbage collected, and at exit. A forked child process, which has a copy
    of the object, does not remove it. `sweep` removes the directories of killed processes.
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
        """Write files into the directory; `contents` maps relative paths to data."""
        for path, data in contents.items():
            target = self.path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def sweep() -> None:
    """Remove those of our directories in the system's temporary directory whose owners have ended."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False) and _is_mine(entry):
                _remove_if_left(Path(entry.path))


def claim(path: Path) -> int | None:
    """Lock the file at `path` until the returned descriptor is closed; create the file if necessary.

    Returns None if another process has it locked. Raises OSError if the file cannot be created.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if _lock(descriptor) == "taken":
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # the previous owner has removed the file meanwhile


def clear(directory: Path, owner: str) -> None:
    """Remove everything in `directory` except the file `owner`. Entries that cannot be removed stay."""
    with contextlib.suppress(OSError):
        for entry in list(directory.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != owner:
                with contextlib.suppress(OSError):
                    entry.unlink()


def _own(directory: Path) -> int | None:
    """Create the locked file and return its descriptor. The file gets its final name only once it is locked."""
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
    # The owner's file goes last, so that a directory that could not be emptied is still recognized by the next sweep.
    with contextlib.suppress(OSError):
        if all(left.name == OWNER for left in directory.iterdir()):
            shutil.rmtree(directory, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


def _remove_if_left(directory: Path) -> None:
    try:
        descriptor = os.open(directory / OWNER, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # no owner's file: not one of ours, or just being created
        return
    if _lock(descriptor) == "ours":
        _remove(directory, descriptor, os.getpid())
    else:
        os.close(descriptor)


def _lock(descriptor: int) -> Literal["ours", "taken", "unknown"]:
    """Try to lock the file, and return whose it is now; `unknown` if locking is not supported (some network drives)."""
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
