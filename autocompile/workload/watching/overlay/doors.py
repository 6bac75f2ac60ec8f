"""Replacements ("doors") for Python's own file functions, which work on a view.

They take the same arguments and return the same results, but act at another place. A door that the script still holds
when the view has ended calls the original function.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from autocompile.workload.watching.overlay import changes
from autocompile.workload.watching.overlay.listing import listdir, scandir
from autocompile.workload.watching.overlay.telling import Told
from autocompile.workload.watching.overlay.view import View, is_directory, real

Door = Callable[..., Any]
_READ = "stat lstat access getxattr listxattr readlink statvfs open_code"
_OWNED = "chmod chown lchown setxattr removexattr truncate utime"
_MADE = "mkdir mkfifo mknod"
_REMOVED = {"unlink": changes.remove, "remove": changes.remove, "rmdir": changes.remove_directory}
_MOVED = {"rename": changes.rename, "replace": changes.rename, "link": changes.link}
_LINKS_THEMSELVES = {"lstat", "readlink", "lchown"}


def doors(view: View) -> dict[Door, Door]:
    """Return the door that replaces each function."""

    def read(path: str, follow: bool) -> str:
        return view.located(path, follow=follow)[1]

    def owned(path: str, follow: bool) -> str:
        return changes.owned(view, path, follow=follow)

    made = {name: _at(view, name, read) for name in _known(_READ)}
    made |= {name: _at(view, name, owned) for name in _known(_OWNED)}
    made |= {name: _making(view, getattr(real, name)) for name in _known(_MADE)}
    made |= {name: _removing(view, getattr(real, name), change) for name, change in _REMOVED.items()}
    made |= {name: _moving(view, getattr(real, name), move) for name, move in _MOVED.items()}
    made |= {
        "chdir": _at(view, "chdir", lambda path, _: _entered(view, path)),
        "symlink": _symlink(view),
        "getcwd": functools.wraps(real.getcwd)(lambda: view.current() if view.active else real.getcwd()),
        "getcwdb": functools.wraps(real.getcwdb)(
            lambda: os.fsencode(view.current()) if view.active else real.getcwdb()
        ),
        "listdir": listdir(view),
        "scandir": scandir(view),
        "open": _descriptor(view),
        "open_file": _file(view),
    }
    return {getattr(real, name): door for name, door in made.items()}


def _known(names: str) -> list[str]:
    """Return the names that this system has."""
    return [name for name in names.split() if hasattr(real, name)]


def _at(view: View, name: str, place: Callable[[str, bool], str]) -> Door:
    """Make a door for a function that takes one path, and acts on the place to which the path leads."""
    original, follows = getattr(real, name), name not in _LINKS_THEMSELVES

    @functools.wraps(original)
    def door(path: Any, *args: Any, **options: Any) -> Any:
        if not view.active or isinstance(path, int):
            return original(path, *args, **options)
        with Told(view, path):
            whole = view.absolute(path, options.pop("dir_fd", None))
            result = original(place(whole, options.get("follow_symlinks", follows)), *args, **options)
        return os.fsencode(result) if isinstance(path, bytes) and isinstance(result, str) else result

    return door


def _entered(view: View, path: str) -> str:
    """Return the user's own directory if it exists, so that programs that the script starts find their files there."""
    resolved, here = view.located(path)
    return resolved if is_directory(here) and is_directory(resolved) else here


def _making(view: View, original: Door) -> Door:
    @functools.wraps(original)
    def door(path: Any, *args: Any, dir_fd: int | None = None, **options: Any) -> None:
        if not view.active:
            original(path, *args, dir_fd=dir_fd, **options)
            return
        with Told(view, path):
            changes.make(view, view.absolute(path, dir_fd), lambda place: original(place, *args, **options))

    return door


def _symlink(view: View) -> Door:
    @functools.wraps(real.symlink)
    def door(src: Any, dst: Any, target_is_directory: Any = False, *, dir_fd: int | None = None) -> None:
        if not view.active:
            real.symlink(src, dst, target_is_directory, dir_fd=dir_fd)
            return
        with Told(view, src, dst):
            changes.make(view, view.absolute(dst, dir_fd), lambda place: real.symlink(os.fsdecode(src), place))

    return door


def _removing(view: View, original: Door, change: Callable[[View, str], None]) -> Door:
    @functools.wraps(original)
    def door(path: Any, *, dir_fd: int | None = None) -> None:
        if not view.active:
            original(path, dir_fd=dir_fd)
            return
        with Told(view, path):
            change(view, view.absolute(path, dir_fd))

    return door


def _moving(view: View, original: Door, move: Callable[[View, str, str], None]) -> Door:
    @functools.wraps(original)
    def door(
        src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None, **options: Any
    ) -> None:
        if not view.active:
            original(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **options)
            return
        with Told(view, src, dst):
            move(view, view.absolute(src, src_dir_fd), view.absolute(dst, dst_dir_fd))

    return door


def _descriptor(view: View) -> Door:
    @functools.wraps(real.open)
    def door(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        if not view.active:
            return real.open(path, flags, mode, dir_fd=dir_fd)
        with Told(view, path):
            return real.open(changes.opened(view, view.absolute(path, dir_fd), flags), flags, mode)

    return door


def _file(view: View) -> Door:
    @functools.wraps(real.open_file)
    def door(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: Any = True,
        opener: Callable[[Any, int], int] | None = None,
    ) -> Any:
        rest = (mode, buffering, encoding, errors, newline)
        if not view.active or isinstance(file, int):
            return real.open_file(file, *rest, closefd, opener)
        if opener is not None:  # the opener decides itself what it opens
            return _named(real.open_file(opener(file, flags_of(mode)), *rest), file)
        with Told(view, file):
            place = changes.opened(view, view.absolute(file), flags_of(mode))
            return _named(real.open_file(place, *rest, closefd), file)

    return door


def flags_of(mode: str) -> int:
    """Return the flags that `open` with this mode passes to the system."""
    kind = next((letter for letter in mode if letter in "rwax"), "r")
    made = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}[kind]
    return made | os.O_CLOEXEC | (os.O_RDWR if "+" in mode else os.O_RDONLY if kind == "r" else os.O_WRONLY)


def _named(stream: Any, name: Any) -> Any:
    """Set the name that the script gave to the file, because the script may print it or open it again."""
    getattr(getattr(stream, "buffer", stream), "raw", getattr(stream, "buffer", stream)).name = os.fspath(name)
    return stream
