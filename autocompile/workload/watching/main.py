"""A user's script, run as Python runs the program that it is given."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType


def run_as_main(path: Path, arguments: Sequence[str] = (), *, is_over: Callable[[], bool] = lambda: False) -> None:
    """Run the script at `path` as `__main__`, its `arguments` in `sys.argv` and its folder first on `sys.path`.

    All three stay, for what the script has left running. As Python does, it waits for threads that the script has left,
    but no longer than until it `is_over`. Raises whatever the script does.
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
        while thread is not threading.current_thread() and not thread.daemon and thread.is_alive() and not is_over():
            thread.join(0.1)
