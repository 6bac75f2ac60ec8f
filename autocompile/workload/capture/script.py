"""Run a user's script to get the workload that it defines."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.capture.endings import ended, run_as_a_script, seen_whole, shown
from autocompile.workload.places import is_installed
from autocompile.workload.training.training import Training

_STDLIB = sysconfig.get_path("stdlib")
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_HOW = "define `model` and `inputs`, or a function `workload()` that returns them"
# Optional settings of a training, besides its loss and its optimizer.
_HOW_IT_TRAINS = ("accumulate", "clip_norm")


def workload_from_script(path: Path, arguments: Sequence[str] = ()) -> tuple[Any, Any, Training | None]:
    """Return the `(model, inputs)` that the script defines, by name or through `workload()`, and its training.

    There is a training in three cases: the script defines `optimizer` and `loss`, a function of the model and a batch,
    and optionally `accumulate`, `clip_norm` and `batch = "tune"`; it defines a Training as `training`; or `workload()`
    returns a Training as the third element.

    The script runs under a name that is not `__main__`, with its folder first on `sys.path` and its `arguments` in
    `sys.argv`. Raises InvalidWorkload, which names the last frame in the user's code, if the script raises.
    """
    module = _run(path, arguments)
    factory = getattr(module, "workload", None)
    if callable(factory):
        pair = _guarded(factory, path, arguments)
        trains = isinstance(pair, tuple) and len(pair) == 3 and isinstance(pair[2], Training)
        if not isinstance(pair, tuple) or not (len(pair) == 2 or trains):
            raise InvalidWorkload("workload() must return (model, inputs)", where=shown(path), remedy=_HOW)
        return pair[0], pair[1], pair[2] if trains else None
    missing = [name for name in ("model", "inputs") if not hasattr(module, name)]
    if missing:
        raise InvalidWorkload(
            f"defines no {' and no '.join(f'`{name}`' for name in missing)}", where=shown(path), remedy=_HOW
        )
    return module.model, module.inputs, _training(module)


def _training(module: ModuleType) -> Training | None:
    """Return the script's training, or None if it defines none.

    A tensor called `loss` is left over from a loop, and a module called `loss` is a criterion, which takes no model.
    """
    if isinstance(getattr(module, "training", None), Training):
        return module.training  # type: ignore[no-any-return]
    loss = getattr(module, "loss", None)
    if not hasattr(module, "optimizer") or not callable(loss) or isinstance(loss, nn.Module):
        return None
    besides = {name: getattr(module, name, None) for name in _HOW_IT_TRAINS}
    given = {name: value for name, value in besides.items() if value is not None and not callable(value)}
    if getattr(module, "batch", None) == "tune":  # any other value is left over from a loop
        given["batch"] = "tune"
    return Training(loss=loss, optimizer=module.optimizer, **given)


def _run(path: Path, arguments: Sequence[str]) -> ModuleType:
    name = f"_tuned_{path.stem.replace('.', '_')}"
    loader = _ScriptLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or path.suffix != ".py":
        raise InvalidWorkload("is not a Python file", where=shown(path), remedy="give a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    cloudpickle.register_pickle_by_value(module)
    _guarded(lambda: _execute(loader, module), path, arguments)
    return module


def _execute(loader: SourceFileLoader, module: ModuleType) -> None:
    """Execute the script. It may exit with status 0 once its workload is defined."""
    try:
        loader.exec_module(module)
    except SystemExit as end:
        if end.code or not (hasattr(module, "workload") or (hasattr(module, "model") and hasattr(module, "inputs"))):
            raise


class _ScriptLoader(SourceFileLoader):
    """Reads and writes no bytecode files, as Python does for the script that it is given to run."""

    def path_stats(self, path: Any) -> Any:
        raise OSError(f"{path} is a script")


def _guarded(call: Any, path: Path, arguments: Sequence[str]) -> Any:
    with run_as_a_script(path, arguments) as heard:
        try:
            return call()
        except InvalidWorkload:
            raise
        except SystemExit as end:
            raise ended(end, heard.last_line, path, arguments, how=_HOW) from end
        except Exception as fault:
            said = f"raised {describe_fault(fault)}"
            raise InvalidWorkload(said, where=shown(path), remedy=seen_whole(path, arguments)) from fault


def describe_fault(fault: BaseException) -> str:
    """Return type, first line of the message, and the innermost frame: `ValueError: no (net.py:12 in forward)`."""
    name, text = type(fault).__name__, str(fault.msg if isinstance(fault, SyntaxError) else fault).strip().splitlines()
    said = f"{name}: {text[0].removeprefix(f'{name}: ')}" if text else name
    if isinstance(fault, SyntaxError) and fault.filename:
        return f"{said} ({Path(fault.filename).name}:{fault.lineno})"
    frames = [one for one in traceback.extract_tb(fault.__traceback__) if not one.filename.startswith(_PACKAGE)]
    return said + (own_place(fault) or _place(frames[-1:]))


def own_place(fault: BaseException) -> str:
    """Return the innermost frame in the user's own code, as ` (net.py:12 in forward)`, or "" if there is none."""
    return _place([frame for frame in traceback.extract_tb(fault.__traceback__) if is_own(frame.filename)])


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""


def is_own(filename: str) -> bool:
    """Return whether a file is the user's: it is not from this package, an installed package or Python."""
    return not filename.startswith((_PACKAGE, _STDLIB, "<")) and not is_installed(filename)
