"""A user's script, run for the workload it defines."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from autocompile.core.errors import InvalidWorkload

_STDLIB = sysconfig.get_path("stdlib")
_PACKAGE = str(Path(__file__).resolve().parents[1])
_HOW = "define `model` and `inputs`, or a function `workload()` that returns them"


def workload_from_script(path: Path) -> tuple[Any, Any]:
    """The `(model, inputs)` that the script defines, by name or through `workload()`.

    The script is run under a name that is not `__main__`, with its folder first on `sys.path`, as
    Python has it. Raises InvalidWorkload, naming the last frame in the user's code, if it raises.
    """
    module = _run(path)
    factory = getattr(module, "workload", None)
    if callable(factory):
        pair = _guarded(factory, path)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidWorkload("workload() must return (model, inputs)", where=str(path), remedy=_HOW)
        return pair
    missing = [name for name in ("model", "inputs") if not hasattr(module, name)]
    if missing:
        raise InvalidWorkload(
            f"defines no {' and no '.join(f'`{name}`' for name in missing)}", where=str(path), remedy=_HOW
        )
    return module.model, module.inputs


def _run(path: Path) -> ModuleType:
    name = f"_tuned_{path.stem.replace('.', '_')}"
    loader = _ScriptLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or path.suffix != ".py":
        raise InvalidWorkload("is not a Python file", where=str(path), remedy="give a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    cloudpickle.register_pickle_by_value(module)
    _guarded(lambda: loader.exec_module(module), path)
    return module


class _ScriptLoader(SourceFileLoader):
    """Reads and leaves no bytecode, as Python does not for what it is given to run."""

    def path_stats(self, path: Any) -> Any:
        raise OSError(f"{path} is a script")


def _guarded(call: Any, path: Path) -> Any:
    try:
        return call()
    except InvalidWorkload:
        raise
    except (Exception, SystemExit) as fault:
        raise InvalidWorkload(
            f"raised {describe_fault(fault)}", where=str(path), remedy=f"run `python {path}` to see it whole"
        ) from fault


def describe_fault(fault: BaseException) -> str:
    """Type, first line of the message, and the innermost frame: `ValueError: no (net.py:12 in forward)`."""
    text = str(fault).strip().splitlines()
    said = f"{type(fault).__name__}: {text[0]}" if text else type(fault).__name__
    frames = traceback.extract_tb(fault.__traceback__)
    others = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    own = [frame for frame in others if is_own(frame.filename)]
    shown = own or others
    if isinstance(fault, SyntaxError) and fault.filename:
        return f"{said} ({Path(fault.filename).name}:{fault.lineno})"
    if not shown:
        return said
    return f"{said} ({Path(shown[-1].filename).name}:{shown[-1].lineno} in {shown[-1].name})"


def is_own(filename: str) -> bool:
    """Whether a file is the user's: neither this package, nor installed, nor Python's."""
    return not filename.startswith((_PACKAGE, _STDLIB, "<")) and "site-packages" not in filename
