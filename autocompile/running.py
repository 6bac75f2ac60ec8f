"""Floor 5: runs a script with a recommendation applied: `python -m autocompile.running RECOMMENDATION SCRIPT ...`.

The command `autocompile run` replaces itself by this process, so that exit status and signals are those of the script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from autocompile.artifact.directory import read_document
from autocompile.artifact.generated_script import GeneratedScript
from autocompile.artifact.scripted import ServedScript
from autocompile.artifact.scripted_function import ServedFunction
from autocompile.artifact.scripted_loader import ServedLoader
from autocompile.artifact.trained_script import TrainedScript
from autocompile.core.document import Document
from autocompile.core.errors import UsageError
from autocompile.report.service import service_lines
from autocompile.workload.capture.place import ScriptPlace, script_place
from autocompile.workload.function.naming import function_name, placed
from autocompile.workload.watching.main import run_as_main

Served = ServedScript | ServedFunction | TrainedScript | GeneratedScript


def main(arguments: Sequence[str]) -> None:
    """Run a script and exit as it does, or with status 2 if the script or the recommendation cannot be used."""
    directory, given, own = Path(arguments[0]), arguments[1], arguments[2:]
    as_module = given == "-m"
    if as_module:
        given, *own = own
    try:
        script = script_place(given, as_module=as_module)
        document = read_document(directory)
        served, loader = _served(document, directory, script), ServedLoader(document)
    except UsageError as fault:
        print(f"autocompile: {fault}", file=sys.stderr)
        sys.exit(2)
    raised = False
    try:
        with served.applied(), loader.applied():
            replaces = served.replaces if isinstance(served, ServedFunction) else None
            run_as_main(script.path, own, name=script.name, replaces=replaces)
    except SystemExit:
        raise
    except BaseException as fault:
        raised = True
        # Shown once, by the script's own excepthook if it has one. Raising again gives the interpreter's exit status.
        shown = fault.with_traceback(_of_the_script(fault.__traceback__))
        sys.excepthook(type(fault), shown, shown.__traceback__)
        sys.excepthook = lambda *_: None
        raise
    finally:
        with suppress(Exception):  # the script may have closed or replaced its streams
            _tell(document, served, loader, raised=raised)


def _served(document: Document, directory: Path, script: ScriptPlace) -> Served:
    """Return the object that applies the recommendation, depending on what was tuned. Raises UsageError."""
    entry = document.workload.script
    if entry is not None and entry.function:
        name = placed(function_name(entry.function), script.path, script.package)
        return ServedFunction(directory, name, takes_gradients=not entry.with_gradients)
    if document.workload.generation:
        return GeneratedScript(directory)
    return TrainedScript(directory) if document.workload.training else ServedScript(directory)


def _tell(document: Document, served: Served, loader: ServedLoader, *, raised: bool) -> None:
    """Print what was served."""
    with suppress(Exception):
        sys.stdout.flush()
    lines = [*service_lines(document, served.services(), served.others, raised=raised), *loader.lines()]
    print("\n".join(f"autocompile: {line}" for line in lines), file=sys.__stderr__, flush=True)


def _of_the_script(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without autocompile's own frames at its start."""
    own = str(Path(__file__).parent) + os.sep
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(own):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main(sys.argv[1:])
