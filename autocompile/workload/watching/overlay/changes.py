"""Apply a watched script's changes to files and directories in the scratch directory, as the system would do it.

Each function takes absolute paths, and raises the OSError that the system would raise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from autocompile.workload.watching.overlay.view import (
    View,
    exists,
    fault,
    is_directory,
    is_mark,
    mark,
    name_of,
    parent_of,
    real,
)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_UNNAMED = getattr(os, "O_TMPFILE", 0)


def writes(flags: int) -> bool:
    """Return whether these flags of os.open may change or create a file."""
    return bool(flags & _WRITING)


def opened(view: View, path: str, flags: int) -> str:
    """Return the path to open for a file and these flags of os.open."""
    alone = flags & os.O_CREAT and flags & os.O_EXCL
    resolved, here = view.located(path, follow=not (alone or flags & os.O_NOFOLLOW))
    if not writes(flags) or view.is_free(resolved):
        return here
    if _UNNAMED and flags & _UNNAMED == _UNNAMED:
        return view.dug(resolved)
    if not exists(here):
        if flags & os.O_CREAT:
            return _room(view, resolved)
        raise fault(_nowhere_or_file(view, parent_of(resolved)), path)
    if alone:
        raise fault(errno.EEXIST, path)
    mode = real.lstat(here).st_mode
    if stat.S_ISDIR(mode):
        raise fault(errno.EISDIR, path)
    if here != resolved or not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return here
    _check_may_write(here)
    return view.owned(resolved, contents=not flags & os.O_TRUNC)


def owned(view: View, path: str, *, follow: bool = True) -> str:
    """Return the path at which to change something that exists: its contents, its times, its mode."""
    return view.owned(view.located(path, follow=follow)[0])


def make(view: View, path: str, call: Callable[[str], Any]) -> None:
    """Let `call` create something at a path where nothing exists: a directory, a link, a pipe."""
    resolved, here = view.located(path, follow=False)
    if view.is_free(resolved):
        call(resolved)
        return
    if exists(here):
        raise fault(errno.EEXIST, path)
    above = _room(view, resolved)
    call(above)
    _cover(resolved, above)
    view.forget()


def remove(view: View, path: str) -> None:
    """Remove a file or a link."""
    resolved, here = view.located(path, follow=False)
    if view.is_free(resolved):
        real.unlink(resolved)
        return
    if not exists(here):
        raise fault(_nowhere_or_file(view, parent_of(resolved)), path)
    if is_directory(here):
        raise fault(errno.EISDIR, path)
    _discard(view, resolved)


def remove_directory(view: View, path: str) -> None:
    """Remove an empty directory."""
    resolved, here = view.located(path, follow=False)
    if view.is_free(resolved):
        real.rmdir(resolved)
        return
    _check_empty(view, resolved, here)
    _discard(view, resolved)


def rename(view: View, source: str, target: str) -> None:
    """Move a file or a directory, and replace what is at the target."""
    (old, here), (new, there) = view.located(source, follow=False), view.located(target, follow=False)
    if view.is_free(old) and view.is_free(new):
        real.rename(old, new)
    else:
        _check_rename(view, (old, here), (new, there))
        if old == new:
            return
        moved = _whole(view, old)
        place = new if view.is_free(new) else _room(view, new)
        if is_directory(place) and not view.is_free(new):
            _remove_emptied(place)
        real.rename(moved, place)
        if not view.is_free(new):
            _cover(new, place)
        if not view.is_free(old) and exists(old):
            mark(view.above(old))
    view.forget()


def link(view: View, source: str, target: str) -> None:
    """Create a hard link. A user's file is copied first, because writing to one name changes the other too."""
    (old, here), (new, there) = view.located(source, follow=False), view.located(target, follow=False)
    if not exists(here):
        raise fault(_nowhere_or_file(view, parent_of(old)), source)
    if exists(there):
        raise fault(errno.EEXIST, target)
    if not view.is_free(new):
        _check_room(view, new)
    if is_directory(here):
        raise fault(errno.EPERM, source)
    real.link(view.owned(old), new if view.is_free(new) else _room(view, new))


def _room(view: View, resolved: str) -> str:
    """Return the scratch path for a new entry of a directory, after removing the mark that an old one was removed."""
    _check_room(view, resolved)
    above = f"{view.dug(parent_of(resolved)).rstrip('/')}/{name_of(resolved)}"
    if is_mark(above):
        real.unlink(above)
    return above


def _check_room(view: View, resolved: str) -> None:
    parent = parent_of(resolved)
    lies = view.place(parent)
    if not is_directory(lies):
        raise fault(errno.ENOTDIR if exists(lies) else _nowhere_or_file(view, parent), resolved)
    _check_may_write(lies)


def _nowhere_or_file(view: View, resolved: str) -> int:
    """Return the error for a missing directory: it does not exist, or a file is in its place."""
    while resolved != "/" and not exists(view.place(resolved)):
        resolved = parent_of(resolved)
    return errno.ENOENT if is_directory(view.place(resolved)) else errno.ENOTDIR


def _discard(view: View, resolved: str) -> None:
    """Remove an entry from the view, once all checks have passed."""
    above = _room(view, resolved)
    if is_directory(above):
        _remove_emptied(above)
    elif exists(above):
        real.unlink(above)
    if exists(resolved):
        mark(above)
    view.forget()


def _remove_emptied(above: str) -> None:
    """Remove a scratch directory that holds only marks of removed entries."""
    for name in real.listdir(above):
        real.unlink(f"{above}/{name}")
    real.rmdir(above)


def _whole(view: View, resolved: str) -> str:
    """Copy something to the scratch directory with all of its contents, and return its path there."""
    place: str = view.owned(resolved)
    if view.is_free(resolved) or not is_directory(place):
        return place
    for name in view.names(resolved):
        _whole(view, f"{resolved}/{name}")
    for name in real.listdir(place):
        if is_mark(f"{place}/{name}"):
            real.unlink(f"{place}/{name}")
    return place


def _cover(resolved: str, above: str) -> None:
    """Hide the user's files at the place of a directory that has just been moved there."""
    if not is_directory(above):
        return
    with contextlib.suppress(OSError):
        for name in real.listdir(resolved):
            mark(f"{above}/{name}")
            _cover(f"{resolved}/{name}", f"{above}/{name}")


def _check_rename(view: View, old: tuple[str, str], new: tuple[str, str]) -> None:
    (source, here), (target, there) = old, new
    if not exists(here):
        raise fault(_nowhere_or_file(view, parent_of(source)), source)
    if target.startswith(f"{source}/") and is_directory(here):
        raise fault(errno.EINVAL, source)
    if source.startswith(f"{target}/"):
        raise fault(errno.ENOTEMPTY, target)
    if source == target or not exists(there):
        return
    if is_directory(here):
        _check_empty(view, target, there)
    elif is_directory(there):
        raise fault(errno.EISDIR, target)


def _check_empty(view: View, resolved: str, here: str) -> None:
    if not is_directory(here):
        raise fault(errno.ENOTDIR if exists(here) else _nowhere_or_file(view, parent_of(resolved)), resolved)
    if view.names(resolved):
        raise fault(errno.ENOTEMPTY, resolved)


def _check_may_write(place: str) -> None:
    """Refuse what the script may not do when it is not watched either."""
    if not real.access(place, os.W_OK):
        raise fault(errno.EACCES, place)
