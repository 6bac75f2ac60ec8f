"""Find in a function's code whether it changes something, or does something besides computing."""

from __future__ import annotations

import types
from collections.abc import Iterator

from autocompile.workload.identity.bytecode import attributes_stored, names_in, variables_stored

# Calls that do something besides computing, which a compiled program would not repeat.
_BUILTINS = frozenset({"print", "open", "input", "exec", "eval", "setattr", "delattr", "breakpoint"})
_MODULES = frozenset(
    {
        *("csv", "datetime", "json", "logging", "os", "pathlib", "pickle", "queue", "random", "shutil", "socket"),
        *("subprocess", "sys", "threading", "time", "tqdm", "wandb"),
    }
)
_TORCHS = frozenset({"save", "manual_seed", "set_rng_state", "set_num_threads", "set_default_dtype", "tensorboard"})


def acts_of(function: types.FunctionType) -> Iterator[str]:
    """Yield a description of each such action."""
    where = f"{function.__qualname__}()"
    yield from (f"{where} writes the variable {name}" for name in variables_stored(function.__code__))
    yield from (f"{where} writes the attribute {name}" for name in attributes_stored(function.__code__))
    names = tuple(names_in(function.__code__))
    for name in names:
        held = function.__globals__.get(name)
        module = held.__name__ if isinstance(held, types.ModuleType) else getattr(type(held), "__module__", "")
        module = getattr(held, "__module__", None) or module if callable(held) else module
        is_builtin = name in _BUILTINS and held is None
        if is_builtin or str(module).partition(".")[0] in _MODULES:
            yield f"{where} uses {name}"
        if name == "torch" and not _TORCHS.isdisjoint(names):
            yield f"{where} uses torch.{next(one for one in names if one in _TORCHS)}"
