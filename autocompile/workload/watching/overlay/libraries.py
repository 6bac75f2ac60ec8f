"""Libraries that pass a path to native code: each function, and the position of its path argument.

It makes no difference whether the script imports such a library or it was imported before. Its door is installed as
soon as the module is complete.
"""

from __future__ import annotations

import functools
import os
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import BuiltinMethodType
from typing import Any, NamedTuple

from autocompile.workload.watching.overlay import changes
from autocompile.workload.watching.overlay.patches import Patches
from autocompile.workload.watching.overlay.telling import Told
from autocompile.workload.watching.overlay.view import View, exists

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_CHANGED = os.O_RDWR | os.O_CREAT


class Way(NamedTuple):
    """A function of a library, and the number and name of its path argument."""

    module: str
    function: str
    number: int
    name: str
    place: Callable[[View, str, dict[str, Any]], str]


def _read(view: View, path: str, _: dict[str, Any]) -> str:
    return view.located(view.absolute(path))[1]


def _written(view: View, path: str, _: dict[str, Any]) -> str:
    return changes.opened(view, view.absolute(path), _NEW)


def _written_into(view: View, path: str, _: dict[str, Any]) -> str:
    return view.dug(view.located(view.absolute(path))[0])


def _suffixed(view: View, path: str, _: dict[str, Any]) -> str:
    """Return the path of a database that is stored in several files named after the path."""
    whole = view.absolute(path)
    for suffix in (".db", ".pag", ".dir"):
        resolved, here = view.located(whole + suffix)
        if here == resolved and exists(here):
            view.owned(resolved)
    folder, name = os.path.split(whole)
    return os.path.join(view.dug(view.located(folder)[0]), name)  # noqa: PTH118  a string, like the other paths here


def _changed(view: View, path: str, _: dict[str, Any]) -> str:
    return changes.opened(view, view.absolute(path), _CHANGED)


def _mapped(view: View, path: str, options: dict[str, Any]) -> str:
    return (_changed if options.get("shared") else _read)(view, path, options)


def _database(view: View, path: str, options: dict[str, Any]) -> str:
    """Copy a database and its journals, because SQLite does not tell in advance whether it will write."""
    if not path or path == ":memory:":
        return path
    if options.get("uri") and path.startswith("file:"):
        return _database_of_uri(view, path)
    whole = view.absolute(path)
    for journal in (f"{whole}-wal", f"{whole}-journal"):
        resolved, here = view.located(journal)
        if here == resolved and exists(here):
            view.owned(resolved)
    return changes.opened(view, whole, _CHANGED)


def _database_of_uri(view: View, uri: str) -> str:
    parts = urllib.parse.urlsplit(uri)
    asked = urllib.parse.parse_qs(parts.query)
    path = urllib.parse.unquote(parts.path)
    if asked.get("mode") == ["memory"] or path == ":memory:":
        return uri
    reads = asked.get("mode") == ["ro"] or asked.get("immutable") == ["1"]
    place = _read(view, path, {}) if reads else _database(view, path, {})
    return urllib.parse.urlunsplit(("file", "", urllib.parse.quote(place), parts.query, parts.fragment))


WAYS = (
    Way("sqlite3", "connect", 0, "database", _database),
    Way("_gdbm", "open", 0, "filename", _changed),
    Way("_dbm", "open", 0, "filename", _suffixed),
    Way("torch._C", "PyTorchFileWriter", 0, "", _written),
    Way("torch._C", "PyTorchFileReader.__init__", 1, "", _read),
    Way("torch._C", "ScriptModule.save", 1, "", _written),
    Way("torch._C", "import_ir_module", 1, "", _read),
    Way("torch._C._autograd", "_ProfilerResult.save", 1, "", _written),
    Way("torch.storage", "UntypedStorage.from_file", 0, "filename", _mapped),
    Way("torch", "from_file", 0, "filename", _mapped),
    Way("safetensors._safetensors_rust", "serialize_file", 1, "filename", _written),
    Way("safetensors._safetensors_rust", "safe_open", 0, "filename", _read),
    Way("tokenizers.tokenizers", "Tokenizer.save", 1, "path", _written),
    Way("tokenizers.tokenizers", "Tokenizer.from_file", 0, "path", _read),
    Way("tokenizers.tokenizers", "models.Model.save", 1, "folder", _written_into),
)


class Libraries:
    """Installs doors for the libraries in WAYS as they are imported."""

    def __init__(self, view: View, patches: Patches) -> None:
        self._view, self._patches = view, patches
        self._awaited = list(WAYS)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the awaited modules, before all other finders, and install their doors when they are complete."""
        self.settle()
        if not any(way.module == name for way in self._awaited):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = self._settling(name, loader.exec_module)
        return spec

    def _settling(self, name: str, execute: Callable[[Any], None]) -> Callable[[Any], None]:
        def executed(module: Any) -> None:
            execute(module)
            self.settle(complete=name)

        return executed

    def settle(self, complete: str = "") -> None:
        """Install doors for the modules imported so far. `complete` is the module that has just been executed."""
        if not self._view.active:
            return
        for way in [way for way in self._awaited if way.module in sys.modules]:
            owner, name = _owner(way)
            if hasattr(owner, name) and (way.module == complete or not _is_being_imported(way.module)):
                self._awaited.remove(way)
                self._put(way, owner, name)

    def _put(self, way: Way, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        door = _door(self._view, original, way)
        if not isinstance(owner, type):
            self._patches.replace({original: door}, _family(way.module))
        elif isinstance(original, BuiltinMethodType):
            self._patches.put(owner, name, staticmethod(door))
        else:
            self._patches.put(owner, name, door)


def _is_being_imported(module: str) -> bool:
    """Return whether the module's code may still use the function, for example to add its documentation."""
    return bool(getattr(getattr(sys.modules[module], "__spec__", None), "_initializing", False))


def _owner(way: Way) -> tuple[Any, str]:
    *classes, name = way.function.split(".")
    owner: Any = sys.modules[way.module]
    for part in classes:
        owner = getattr(owner, part, None)
    return owner, name


def _family(module: str) -> Iterator[Any]:
    """Yield the modules that may hold the function by name: those of its package, or of the package that wraps it."""
    root = {"_gdbm": "dbm"}.get(module, module.partition(".")[0])
    return (found for name, found in list(sys.modules.items()) if name == module or name.partition(".")[0] == root)


def _door(view: View, original: Any, way: Way) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def door(*args: Any, **options: Any) -> Any:
        number, named = way.number, way.name in options
        path = options.get(way.name) if named else args[number] if number < len(args) else None
        if not view.active or not isinstance(path, str | bytes | os.PathLike):
            return original(*args, **options)
        with Told(view, path):
            place = way.place(view, os.fsdecode(path), _asked(way, args, options))
        if named:
            return original(*args, **{**options, way.name: place})
        return original(*args[:number], place, *args[number + 1 :], **options)

    return door


def _asked(way: Way, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that `place` reads, including those given by position."""
    name, number = ("uri", 7) if way.place is _database else ("shared", 1)
    return options | {name: args[number]} if number < len(args) else options
