"""Where a file lies that a watched script names: in the scratch directory if the script wrote it, else where it was.

The scratch directory mirrors absolute paths, as the upper directory of an overlay file system does. A name that the
script removed is a symbolic link to itself there, which nobody can follow. All of that is on disk, so processes that
the script forks see what it wrote, and it sees what they wrote.

Paths are resolved here and not by the kernel: a link of the user's can lead to what the script wrote, and one of the
script's to what is the user's.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

_NAMES = (
    "access chdir chmod chown getcwd getcwdb getxattr lchown link listdir listxattr lstat mkdir mkfifo mknod open"
    " readlink remove removexattr rename replace rmdir scandir setxattr stat statvfs symlink truncate unlink utime"
)
# The functions themselves: the names that modules know them by lead elsewhere while a script is watched.
real = SimpleNamespace(
    open_file=io.open,
    open_code=io.open_code,
    **{name: getattr(os, name) for name in _NAMES.split() if hasattr(os, name)},
)
_MARK = "./././"  # before its own name, so that it is no link of the script's
_MOST_LINKS = 40  # as many as Linux follows


class View:
    """The files, as the script sees them.

    A path that was resolved has no link on the way to its last part; methods that take one say `resolved`.
    """

    def __init__(self, scratch: str, free: Iterable[str], guarded: Iterable[str]) -> None:
        """`free` are directories that may be written as they are, `guarded` those beneath them that may not."""
        self.scratch = os.path.realpath(scratch)
        self.active = True
        self._missing = f"{self.scratch}/.missing"
        places = {os.path.realpath(place): True for place in free}
        places |= {place: False for place in map(os.path.realpath, guarded) if not places.get(place)}
        places[self.scratch] = True
        # The longest decides, so they are asked in that order.
        self._places = [(f"{place}/", places[place]) for place in sorted(places, key=len, reverse=True)]
        self._directories: dict[str, str] = {"": "", "/": ""}

    def absolute(self, path: Any, directory: int | None = None) -> str:
        """A path as the script says it, from its current directory or from that of the descriptor."""
        text = os.fsdecode(path)
        if not text:
            raise fault(errno.ENOENT, text)
        if text[0] == "/":
            return text
        return f"{self.current() if directory is None else self.of_descriptor(directory)}/{text}"

    def current(self) -> str:
        return self._seen(real.getcwd())

    def is_inside(self) -> bool:
        """Whether the current directory is one that only the script made."""
        return bool(real.getcwd() != self.current())

    def of_descriptor(self, descriptor: int) -> str:
        return self._seen(real.readlink(f"/proc/self/fd/{descriptor}"))

    def _seen(self, place: str) -> str:
        inside = place.startswith(f"{self.scratch}/") or place == self.scratch
        return place.removeprefix(self.scratch) or "/" if inside else place

    def located(self, path: str, *, follow: bool = True) -> tuple[str, str]:
        """An absolute path resolved, and where it lies. `follow`: resolved also where its last part is a link."""
        head, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            resolved = self._directory(path) or "/"
            return resolved, self.place(resolved)
        resolved = f"{self._directory(head)}/{name}"
        here = self.place(resolved)
        if follow and (target := self._target(here)) is not None:
            resolved = self._directory(_joined(self._directory(head), target), 1) or "/"
            here = self.place(resolved)
        return resolved, here

    def place(self, resolved: str) -> str:
        """Where it lies; of what was removed, a path at which nothing lies."""
        if self.is_free(resolved):
            return resolved
        above = self.above(resolved)
        try:
            status = real.lstat(above)
        except FileNotFoundError:
            return resolved
        except OSError as problem:
            return self._missing if problem.errno == errno.ELOOP else above
        return self._missing if stat.S_ISLNK(status.st_mode) and is_mark(above) else above

    def above(self, resolved: str) -> str:
        """Where it lies if the script wrote it."""
        return f"{self.scratch}{resolved}"

    def is_free(self, resolved: str) -> bool:
        whole = f"{resolved}/"
        for place, free in self._places:
            if whole.startswith(place):
                return free
        return False

    def forget(self) -> None:
        """Links or directories have changed: nothing that was resolved before holds."""
        self._directories = {"": "", "/": ""}

    def entries(self, resolved: str) -> dict[str, os.DirEntry[str]]:
        """What a directory holds, by name, where the script has changed something in it."""
        found: dict[str, os.DirEntry[str]] = {}
        with contextlib.suppress(OSError), real.scandir(resolved) as theirs:
            found.update((entry.name, entry) for entry in theirs)
        with real.scandir(self.above(resolved)) as written:
            for entry in written:
                if is_mark(entry.path):
                    found.pop(entry.name, None)
                else:
                    found[entry.name] = entry
        return found

    def is_changed(self, resolved: str) -> bool:
        return not self.is_free(resolved) and is_directory(self.above(resolved))

    def names(self, resolved: str) -> list[str]:
        return list(self.entries(resolved)) if self.is_changed(resolved) else real.listdir(self.place(resolved))

    def dug(self, resolved: str) -> str:
        """Where what is written into a directory goes; it is made there as it is at its own place."""
        if self.is_free(resolved):
            return resolved
        self._mirror(resolved)
        return self.above(resolved)

    def _mirror(self, resolved: str) -> None:
        above = self.above(resolved)
        if not is_directory(above) and is_directory(self.place(resolved)):
            self._mirror(parent_of(resolved))
            mode = stat.S_IMODE(real.stat(resolved).st_mode)
            with contextlib.suppress(FileExistsError):
                real.mkdir(above, mode | stat.S_IRWXU)

    def owned(self, resolved: str, *, contents: bool = True) -> str:
        """Where it lies, once it is the script's: copied if need be, with or without its contents."""
        here = self.place(resolved)
        if here != resolved or self.is_free(resolved):
            return here
        status = real.lstat(here)
        if stat.S_ISDIR(status.st_mode):
            return self.dug(resolved)
        above = f"{self.dug(parent_of(resolved)).rstrip('/')}/{name_of(resolved)}"
        if stat.S_ISLNK(status.st_mode):
            real.symlink(real.readlink(here), above)
        elif stat.S_ISREG(status.st_mode):
            self._copy(here, above, status, contents=contents)
        else:
            raise fault(errno.EPERM, resolved)
        return above

    def _copy(self, here: str, above: str, status: os.stat_result, *, contents: bool) -> None:
        part = f"{self.scratch}/.part-{os.getpid()}-{threading.get_ident()}"
        with real.open_file(part, "wb") as target:
            if contents:
                with real.open_file(here, "rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
        real.chmod(part, stat.S_IMODE(status.st_mode))
        real.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
        with contextlib.suppress(FileExistsError):  # another thread or process was first
            real.link(part, above)
        real.unlink(part)

    def _directory(self, path: str, followed: int = 0) -> str:
        """An absolute path, resolved to its last part, without a slash at its end: the root is empty.

        Raises OSError if there is no directory to go up from, or links lead in a circle; `followed` says how many led
        here. The system would not notice, as a link in the scratch directory leads it out to the user's file.
        """
        known = self._directories.get(path)
        if known is not None:
            return known
        head, _, name = path.rstrip("/").rpartition("/")
        parent = self._directory(head, followed)
        if name in ("", "."):
            found = parent
        elif name == ".." and parent and not is_directory(place := self.place(parent)):
            raise fault(errno.ENOTDIR if exists(place) else errno.ENOENT, path)
        elif name == "..":
            found = parent.rpartition("/")[0]
        else:
            found = f"{parent}/{name}"
            if (target := self._target(self.place(found))) is not None:
                if followed == _MOST_LINKS:
                    raise fault(errno.ELOOP, path)
                found = self._directory(_joined(parent, target), followed + 1)
        self._directories[path] = found
        return found

    @staticmethod
    def _target(place: str) -> str | None:
        """What a link says, or None if it is none."""
        try:
            return str(real.readlink(place)) if stat.S_ISLNK(real.lstat(place).st_mode) else None
        except OSError:
            return None


def _joined(directory: str, target: str) -> str:
    return target if target[0] == "/" else f"{directory}/{target}"


def fault(number: int, path: str) -> OSError:
    """The error that the system would raise."""
    return OSError(number, os.strerror(number), path)


def parent_of(resolved: str) -> str:
    """The directory that a path lies in."""
    return resolved.rpartition("/")[0] or "/"


def name_of(resolved: str) -> str:
    """A path's last part."""
    return resolved.rpartition("/")[2]


def mark(above: str) -> None:
    """Leave word in the scratch directory that nothing lies here any more."""
    with contextlib.suppress(FileExistsError):
        real.symlink(f"{_MARK}{name_of(above)}", above)


def is_mark(above: str) -> bool:
    """Whether that is what lies there."""
    try:
        return bool(real.readlink(above) == f"{_MARK}{name_of(above)}")
    except OSError:
        return False


def exists(place: str) -> bool:
    """Whether anything lies there, be it a link that leads nowhere."""
    try:
        real.lstat(place)
    except OSError:
        return False
    return True


def is_directory(place: str) -> bool:
    """Whether a directory lies there, and not a link to one."""
    try:
        return stat.S_ISDIR(real.lstat(place).st_mode)
    except OSError:
        return False
