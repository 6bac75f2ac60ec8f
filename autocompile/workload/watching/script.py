"""Run a script that defines no workload, and watch the calls that it makes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import cloudpickle

from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Watching
from autocompile.workload.capture.endings import ended, run_as_a_script, seen_whole, shown
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.places import is_installed
from autocompile.workload.watching.choice import chosen
from autocompile.workload.watching.chosen import Chosen
from autocompile.workload.watching.files import writes_kept_in
from autocompile.workload.watching.functions import chosen_function
from autocompile.workload.watching.main import run_as_main
from autocompile.workload.watching.sight import EnoughSeen, Sight

# Left only when the process ends.
_LASTING = ExitStack()
# Where libraries keep their downloads.
_CACHES = Path.home() / ".cache"
_INSTEAD_OF_INPUT = "let it read this from its arguments or from a file"
_HOW = "define `model` and `inputs`, or a function `workload()`"


def watched(
    path: Path, arguments: Sequence[str], watching: Watching, *, name: str = "", own: Sequence[Path] = ()
) -> Chosen:
    """Run a script as `__main__`, or as the module `name`, until enough was seen, and return what is tuned.

    Files that the script writes are redirected until this process ends, because the script's threads may continue to
    write. The caches in the user's home and the directories in `own` are exceptions. Code from modules in the script's
    folder is pickled by value, so that no other process imports these modules, which might change files. Raises
    InvalidWorkload if the script raises, exits with an error, or calls nothing that can be tuned.
    """
    sight, process, beside = Sight(watching), os.getpid(), path.absolute().parent
    scratch = Path(tempfile.mkdtemp())
    files = _LASTING.enter_context(writes_kept_in(scratch, free=[_CACHES, *own], guarded=[beside]))
    try:
        told = tuple(_run(sight, path, arguments, name))
    finally:
        if os.getpid() != process:  # a process that the script has forked, and that also reached the script's end
            os._exit(0)
    _send_by_value(beside)
    if sight.function is not None:
        function = chosen_function(sight.function, sight.began, shown(path), whole=not sight.ended)
        return replace(function, notes=(*function.notes, *told, *files.notes))
    seen = chosen(sight, watching.module, vars(sys.modules["__main__"]), shown(path), whole=not sight.ended)
    return replace(seen, notes=(*seen.notes, *told, *files.notes))


def _send_by_value(beside: Path) -> None:
    within = str(beside).rstrip(os.sep) + os.sep  # faster than a Path for each of thousands of modules
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and module.__name__ != "__main__" and file.startswith(within) and not is_installed(file):
            cloudpickle.register_pickle_by_value(module)


def _run(sight: Sight, path: Path, arguments: Sequence[str], name: str) -> Iterator[str]:
    """Run the script to its end, or until enough was seen, and yield notes on its end."""
    with run_as_a_script(path, arguments) as heard, sight.open():
        try:
            replaces = sight.function.replaces if sight.function else None
            run_as_main(path, arguments, name=name, replaces=replaces, is_over=lambda: sight.ended)
        except EnoughSeen:
            return
        except SystemExit as end:
            if end.code and sight.began is None:
                raise ended(end, heard.last_line, path, arguments, how=_HOW) from end
            if end.code:
                yield f"the script exited with an error, by sys.exit({end.code!r}), after its calls were recorded"
        except EOFError as fault:
            said = f"reads standard input, which is empty while it is watched ({describe_fault(fault)})"
            raise InvalidWorkload(said, where=shown(path), remedy=_INSTEAD_OF_INPUT) from fault
        except Exception as fault:
            said = f"raised {describe_fault(fault)}"
            remedy = _remedy(fault) or seen_whole(path, arguments)
            raise InvalidWorkload(said, where=shown(path), remedy=remedy) from fault


def _remedy(fault: Exception) -> str:
    """Return the remedy for a fault that comes only from how the script is run, or ""."""
    if isinstance(fault, ImportError) and "attempted relative import" in str(fault):
        return "it is part of a package: give its module's name, as in `autocompile tune -m package.module`"
    if isinstance(fault, NameError) and fault.name == "get_ipython":
        return "that line is a notebook command and not Python: remove it"
    return ""
