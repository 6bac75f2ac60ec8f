"""Locate the files that a watched script names: in the scratch directory if the script wrote them.

The scratch directory mirrors absolute paths, as the upper directory of an overlay file system does. A name that the
script removed is marked there by a symbolic link to itself, which cannot be followed. All of this is on disk, so the
script and the processes that it forks see each other's files.

Paths are resolved here and not by the kernel, because a user's link may lead to a file that the script wrote, and a
link that the script made may lead to a user's file.
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
# The original functions. While a script is watched, their names in modules refer to the doors.
real = SimpleNamespace(
    open_file=io.open,
    open_code=io.open_code,
    **{name: getattr(os, name) for name in _NAMES.split() if hasattr(os, name)},
)
_MARK = "./././"  # in front of the mark's own name, to distinguish it from a link that the script made
_MOST_LINKS = 40  # as many as Linux follows


class View:
    """The files as the script sees them.

    Parameters called `resolved` are paths without links, except possibly in the last part.
    """

    def __init__(self, scratch: str, free: Iterable[str], guarded: Iterable[str]) -> None:
        """`free` are directories that may be written directly. `guarded` are directories within them that may not."""
        self.scratch = os.path.realpath(scratch)
        self.active = True
        self._missing = f"{self.scratch}/.missing"
        places = {os.path.realpath(place): True for place in free}
        places |= {place: False for place in map(os.path.realpath, guarded) if not places.get(place)}
        places[self.scratch] = True
        # The longest matching path decides, so the paths are sorted by length.
        self._places = [(f"{place}/", places[place]) for place in sorted(places, key=len, reverse=True)]
        self._directories: dict[str, str] = {"": "", "/": ""}

    def absolute(self, path: Any, directory: int | None = None) -> str:
        """Make a path absolute, relative to the script's current directory or to the descriptor's directory."""
        text = os.fsdecode(path)
        if not text:
            raise fault(errno.ENOENT, text)
        if text[0] == "/":
            return text
        return f"{self.current() if directory is None else self.of_descriptor(directory)}/{text}"

    def current(self) -> str:
        return self._seen(real.getcwd())

    def is_inside(self) -> bool:
        """Return whether the current directory is one that only the script made."""
        return bool(real.getcwd() != self.current())

    def of_descriptor(self, descriptor: int) -> str:
        return self._seen(real.readlink(f"/proc/self/fd/{descriptor}"))

    def _seen(self, place: str) -> str:
        inside = place.startswith(f"{self.scratch}/") or place == self.scratch
        return place.removeprefix(self.scratch) or "/" if inside else place

    def located(self, path: str, *, follow: bool = True) -> tuple[str, str]:
        """Resolve an absolute path, and return it and its place.

        With `follow`, a link as the last part is resolved too.
        """
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
        """Return where a file is. For a removed file, return a path that does not exist."""
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
        """Return the file's place in the scratch directory, if the script wrote it."""
        return f"{self.scratch}{resolved}"

    def is_free(self, resolved: str) -> bool:
        whole = f"{resolved}/"
        for place, free in self._places:
            if whole.startswith(place):
                return free
        return False

    def forget(self) -> None:
        """Discard the cache of resolved paths, because links or directories have changed."""
        self._directories = {"": "", "/": ""}

    def entries(self, resolved: str) -> dict[str, os.DirEntry[str]]:
        """Return the entries of a directory by name, if the script has changed something in it."""
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
        """Return the place for new files of a directory, after making the directory there as it is at its own place."""
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
        """Return the script's own copy of a file, made if need be, with or without its contents."""
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
        with contextlib.suppress(FileExistsError):  # another thread or process has made it already
            real.link(part, above)
        real.unlink(part)

    def _directory(self, path: str, followed: int = 0) -> str:
        """Resolve an absolute path to its last part, without a trailing slash. The root is "".

        Raises OSError if there is no directory to go up from, or if links form a circle; `followed` is the number of
        links that led here. The system would not notice such errors, because a link in the scratch directory may lead
        to the user's file.
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
        """Return the target of a link, or None if this is not a link."""
        try:
            return str(real.readlink(place)) if stat.S_ISLNK(real.lstat(place).st_mode) else None
        except OSError:
            return None


def _joined(directory: str, target: str) -> str:
    return target if target[0] == "/" else f"{directory}/{target}"


def fault(number: int, path: str) -> OSError:
    """Return the error that the system would raise."""
    return OSError(number, os.strerror(number), path)


def parent_of(resolved: str) -> str:
    """Return the directory that contains a path."""
    return resolved.rpartition("/")[0] or "/"


def name_of(resolved: str) -> str:
    """Return a path's last part."""
    return resolved.rpartition("/")[2]


def mark(above: str) -> None:
    """Mark in the scratch directory that the file was removed."""
    with contextlib.suppress(FileExistsError):
        real.symlink(f"{_MARK}{name_of(above)}", above)


def is_mark(above: str) -> bool:
    """Return whether this path is such a mark."""
    try:
        return bool(real.readlink(above) == f"{_MARK}{name_of(above)}")
    except OSError:
        return False


def exists(place: str) -> bool:
    """Return whether something exists here, including a link that leads nowhere."""
    try:
        real.lstat(place)
    except OSError:
        return False
    return True


def is_directory(place: str) -> bool:
    """Return whether this is a directory, and not a link to one."""
    try:
        return stat.S_ISDIR(real.lstat(place).st_mode)
    except OSError:
        return False
