"""Run a user's script as Python runs the program that it is given."""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import importlib.util
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autocompile.workload.function.naming import with_decorator

if TYPE_CHECKING:
    from autocompile.workload.function.replacing import Replacement

# A name that the script does not use.
_DECORATOR = "__autocompile_replaces__"


def run_as_main(
    path: Path,
    arguments: Sequence[str] = (),
    *,
    name: str = "",
    replaces: Replacement | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Run the script at `path` as `__main__`, with its `arguments` in `sys.argv` and its folder first on `sys.path`.

    With a `name`, the script runs as `python -m` runs the module of that name: within its package, with the working
    directory first on `sys.path`. `replaces` replaces one function when the script defines it.

    These changes stay, for threads that the script has left running. Like Python, this function waits for such threads,
    but only until `is_over`. It does not wait for those of a ThreadPoolExecutor, which wait for work forever; the
    interpreter ends them when it exits. Raises whatever the script raises.
    """
    file = path.absolute()
    module = ModuleType("__main__")
    vars(module).update(__file__=str(file), __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv = [str(file if name else path), *arguments]
    sys.path.insert(0, str(Path.cwd() if name else file.resolve().parent))
    if name:
        found = importlib.util.find_spec(name if file.stem != "__main__" else f"{name}.__main__")
        vars(module).update(__spec__=found, __package__=found.parent if found else name.rpartition(".")[0])
    source: Any = file.read_bytes()
    if replaces is not None and not replaces.name.module:
        vars(module)[_DECORATOR] = replaces.decorate
        source = with_decorator(source, str(file), replaces.name.path, _DECORATOR)
    code = compile(source, str(file), "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102  which is what the user asked for
    for thread in threading.enumerate():
        is_awaited = thread is not threading.current_thread() and not thread.daemon and thread not in _pooled()
        while is_awaited and thread.is_alive() and not is_over():
            thread.join(0.1)


def _pooled() -> Collection[threading.Thread]:
    """Return the threads of executors, which Python keeps in a separate table, to end them last."""
    return getattr(concurrent.futures.thread, "_threads_queues", ())
