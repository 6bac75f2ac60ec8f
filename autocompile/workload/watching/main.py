"""A user's script, run as Python runs the program that it is given."""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType


def run_as_main(path: Path, arguments: Sequence[str] = (), *, is_over: Callable[[], bool] = lambda: False) -> None:
    """Run the script at `path` as `__main__`, its `arguments` in `sys.argv` and its folder first on `sys.path`.

    All three stay, for what the script has left running. As Python does, it waits for threads that the script has left,
    but no longer than until it `is_over`; those of a ThreadPoolExecutor, which wait for work without end, are left to
    the interpreter's own end. Raises whatever the script does.
    """
    file = path.absolute()
    module = ModuleType("__main__")
    vars(module).update(__file__=str(file), __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102  which is what the user asked for
    for thread in threading.enumerate():
        is_awaited = thread is not threading.current_thread() and not thread.daemon and thread not in _pooled()
        while is_awaited and thread.is_alive() and not is_over():
            thread.join(0.1)


def _pooled() -> Collection[threading.Thread]:
    """The threads of executors, which Python has in a table of its own, to end them last."""
    return getattr(concurrent.futures.thread, "_threads_queues", ())
