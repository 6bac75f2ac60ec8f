"""While a script is watched, nothing of the user's is overwritten: what it writes goes to a scratch directory."""

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

_PROGRAMS = "the script starts other programs, whose files are not kept apart: "
_SYSTEM = ("/dev", "/proc", "/sys")
_active: list[View] = []


class KeptFiles:
    """What a watched script wrote, and what could not be kept apart."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._programs: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, in words; nothing if all that the script wrote was kept apart."""
        return (_PROGRAMS + ", ".join(self._programs),) if self._programs else ()

    def where(self, path: str | os.PathLike[str]) -> Path:
        """Where a file lies that the script names so: in the scratch directory if the script wrote it."""
        return Path(self._view.located(self._view.absolute(path))[1])

    def written(self) -> tuple[Path, ...]:
        """The files that the script wrote, at the paths that they have for the script, sorted."""
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
        """What notes the programs that the script starts."""
        return {
            "subprocess.Popen": lambda program, arguments, *_: self._note(arguments or program),
            "os.exec": lambda program, *_: self._note(program),
            "os.posix_spawn": lambda program, *_: self._note(program),
            "os.system": lambda command: self._note(os.fsdecode(command).split() or "sh"),
        }

    def spawning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """In front of what multiprocessing starts processes with that are not forked."""

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
    """Within it, what this Python program writes goes into `scratch`, and it sees the files as if it had not.

    It lies there by its absolute path. What was neither written nor removed is read from where it is, uncopied. A file
    that is changed in part is copied first; so are a database that is opened with sqlite3, and a directory that is
    renamed. Processes that are forked share the view. Programs that are started do not: they run in the user's own
    directories and change what they change, and `notes` of what is yielded names them. Nor are files kept apart that a
    library opens in code of its own (HDF5, Arrow, OpenCV); those of torch, safetensors, tokenizers, SQLite and gdbm
    are. What Python's audit events show of other ways to change a file of the user's is refused with PermissionError.

    May be written as they are: the system's temporary directory, /dev, /proc, /sys, `scratch` and what is `free`; but
    not, of these, the current directory, where it lies beneath one of them, and what is `guarded`.
    Raises RuntimeError if it is entered twice at a time. For Linux, as it reads /proc.
    """
    if _active:
        raise RuntimeError("Files are being kept apart already. Leave writes_kept_in before it is entered again.")
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
        importlib.invalidate_caches()  # they know modules that the script wrote


def _put_doors(view: View, kept: KeptFiles, patches: Patches) -> None:
    replaced = doors(view)
    spawn: Any = vars(util)["spawnv_passfds"]
    # The class is one of Python 3.13: it takes functions of os by name when it is defined.
    globber = getattr(glob, "_StringGlobber", None)
    patches.replace({**replaced, spawn: kept.spawning(spawn)}, [*list(sys.modules.values()), globber])
    patches.announce(replaced)
