"""List a directory as a watched script sees it: the user's files and its own, without those that it removed."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, Self

from autocompile.workload.watching.overlay.telling import Told
from autocompile.workload.watching.overlay.view import View, real


class Entry:
    """A replacement for os.DirEntry, which Python code cannot create."""

    __slots__ = ("_entry", "_view", "_whole", "name", "path")

    def __init__(self, view: View, entry: os.DirEntry[str], whole: str, given: Any) -> None:
        """`whole` is the absolute path. `given` is the directory as the script named it, or None for a descriptor."""
        self._view, self._entry, self._whole = view, entry, whole
        self.name: Any = os.fsencode(entry.name) if isinstance(given, bytes) else entry.name
        self.path: Any = self.name if given is None else os.path.join(given, self.name)  # noqa: PTH118

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._entry.inode()

    def is_symlink(self) -> bool:
        return self._entry.is_symlink()

    def is_junction(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR) if self._leads_on(follow_symlinks) else self._entry.is_dir(follow_symlinks=False)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG) if self._leads_on(follow_symlinks) else self._entry.is_file(follow_symlinks=False)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if self._leads_on(follow_symlinks):
            return real.stat(self._view.located(self._whole)[1])  # type: ignore[no-any-return]
        return self._entry.stat(follow_symlinks=False)

    def _leads_on(self, follow: bool) -> bool:
        return follow and self._entry.is_symlink()

    def _is(self, kind: Callable[[int], bool]) -> bool:
        try:
            return kind(self.stat().st_mode)
        except FileNotFoundError:
            return False


class Entries:
    """A replacement for what os.scandir returns."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def listdir(view: View) -> Callable[..., Any]:
    """Return a replacement for os.listdir."""

    @functools.wraps(real.listdir)
    def door(path: Any = None) -> Any:
        if not view.active:
            return real.listdir(path)
        with Told(view, path):
            resolved, here = view.located(_whole(view, path))
            names = list(view.entries(resolved)) if view.is_changed(resolved) else real.listdir(here)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    return door


def scandir(view: View) -> Callable[..., Any]:
    """Return a replacement for os.scandir. It returns os.scandir's own result if the script changed nothing there."""

    @functools.wraps(real.scandir)
    def door(path: Any = None) -> Any:
        if not view.active:
            return real.scandir(path)
        with Told(view, path):
            whole = _whole(view, path)
            resolved, here = view.located(whole)
            if not view.is_changed(resolved):
                if os.path.normpath(whole) == here and not view.is_inside():
                    return real.scandir(path)
                with real.scandir(here) as found:
                    entries = list(found)
            else:
                entries = list(view.entries(resolved).values())
        given = None if isinstance(path, int) else "." if path is None else os.fspath(path)
        return Entries(Entry(view, entry, f"{resolved}/{entry.name}", given) for entry in entries)

    return door


def _whole(view: View, path: Any) -> str:
    return view.of_descriptor(path) if isinstance(path, int) else view.absolute("." if path is None else path)
