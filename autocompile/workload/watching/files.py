"""Redirect what a watched script writes to a scratch directory, so that none of the user's files are overwritten."""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import util
from pathlib import Path
from typing import Any

from autocompile.workload.watching.overlay.doors import doors
from autocompile.workload.watching.overlay.libraries import Libraries
from autocompile.workload.watching.overlay.patches import Patches
from autocompile.workload.watching.overlay.refusals import Heard, leave, listen, refusals
from autocompile.workload.watching.overlay.view import View, is_mark, real

_PROGRAMS = "the script starts other programs, whose files are not redirected: "
_SYSTEM = ("/dev", "/proc", "/sys")
_active: list[View] = []


class KeptFiles:
    """The files that a watched script wrote, and the programs whose files could not be redirected."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._programs: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user. There are none if everything that the script wrote was redirected."""
        return (_PROGRAMS + ", ".join(self._programs),) if self._programs else ()

    def where(self, path: str | os.PathLike[str]) -> Path:
        """Return where a file of this name is: in the scratch directory if the script wrote it."""
        return Path(self._view.located(self._view.absolute(path))[1])

    def written(self) -> tuple[Path, ...]:
        """Return the files that the script wrote, by the paths that the script sees, sorted."""
        found = []
        pending = [self._view.scratch]
        while pending:
            with real.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif not is_mark(entry.path):
                        found.append(Path(entry.path.removeprefix(self._view.scratch)))
        return tuple(sorted(found))

    def started(self) -> Heard:
        """Return the audit functions that note the programs that the script starts."""
        return {
            "subprocess.Popen": lambda program, arguments, *_: self._note(arguments or program),
            "os.exec": lambda program, *_: self._note(program),
            "os.posix_spawn": lambda program, *_: self._note(program),
            "os.system": lambda command: self._note(os.fsdecode(command).split() or "sh"),
        }

    def spawning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function by which multiprocessing starts processes without forking, to note them."""

        def spawn(path: Any, arguments: Any, *rest: Any) -> Any:
            if self._view.active and not any("resource_tracker" in str(argument) for argument in arguments):
                self._note(path)
            return original(path, arguments, *rest)

        return spawn

    def _note(self, program: Any) -> None:
        first = program if isinstance(program, str | bytes | os.PathLike) else next(iter(program), "")
        self._programs[Path(os.fsdecode(first)).name] = None


@contextlib.contextmanager
def writes_kept_in(scratch: Path, *, free: Iterable[Path] = (), guarded: Iterable[Path] = ()) -> Iterator[KeptFiles]:
    """Redirect what this Python program writes to `scratch`. The program sees its files at the usual paths.

    In `scratch`, files have their absolute paths. Files that were neither written nor removed are read from their
    original place and not copied. A file that is changed in part is copied first, and so are a database that is opened
    with sqlite3 and a directory that is renamed. Forked processes share the view. Programs that are started do not:
    they run in the user's own directories and change files there, and the `notes` of the result name them. Files that a
    library opens in native code (HDF5, Arrow, OpenCV) are not redirected either, except those of torch, safetensors,
    tokenizers, SQLite and gdbm. Other attempts to change a user's file are refused with PermissionError, as far as
    Python's audit events show them.

    These places may be written directly: the system's temporary directory, /dev, /proc, /sys, `scratch` and the `free`
    directories. The current directory and the `guarded` directories are redirected even if they are in one of these
    places. Raises RuntimeError if it is entered again before it is left. Requires Linux, because it reads /proc.
    """
    if _active:
        raise RuntimeError("Files are being redirected already. Leave writes_kept_in before you enter it again.")
    scratch.mkdir(parents=True, exist_ok=True)
    before = real.getcwd()
    view = View(str(scratch), [tempfile.gettempdir(), *_SYSTEM, *map(str, free)], [before, *map(str, guarded)])
    kept, patches = KeptFiles(view), Patches()
    libraries = Libraries(view, patches)
    _active.append(view)
    try:
        _put_doors(view, kept, patches)
        libraries.settle()
        listen({**refusals(view), **kept.started()})
        patches.first(sys.meta_path, libraries)
        yield kept
    finally:
        view.active = False
        leave()
        patches.undo()
        _active.clear()
        if view.is_inside():
            real.chdir(before)
        importlib.invalidate_caches()  # they cache modules that the script wrote


def _put_doors(view: View, kept: KeptFiles, patches: Patches) -> None:
    replaced = doors(view)
    spawn: Any = vars(util)["spawnv_passfds"]
    # This class of Python 3.13 stores functions of os as attributes when it is defined.
    globber = getattr(glob, "_StringGlobber", None)
    patches.replace({**replaced, spawn: kept.spawning(spawn)}, [*list(sys.modules.values()), globber])
    patches.replace_items(replaced, _openers_of_numpy())
    patches.announce(replaced)


def _openers_of_numpy() -> dict[Any, Any]:
    """Return the dictionary in which NumPy keeps `open` for `loadtxt`, `genfromtxt` and `savetxt`."""
    module = sys.modules.get("numpy.lib._datasource")
    held = getattr(getattr(module, "_file_openers", None), "_file_openers", None)
    return held if isinstance(held, dict) else {}
