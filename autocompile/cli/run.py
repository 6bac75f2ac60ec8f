"""`autocompile run RECOMMENDATION SCRIPT [ARGS...]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def run(
    recommendation: Annotated[Path, typer.Argument(help="Where the recommendation is kept.")],
    script: Annotated[Path, typer.Argument(help="Run as it is; or `-m` and a module's name, as for Python.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own.", show_default=False)] = None,
) -> None:
    """Run a script with a recommendation applied to the model that it was tuned for; nothing in it is changed.

    Its output, its exit status and its signals are its own. At the end, standard error has what was served, or what
    was trained as recommended.
    """
    from autocompile.artifact.directory import read_document
    from autocompile.core.errors import UsageError
    from autocompile.workload.capture.place import script_place

    read_document(recommendation)
    as_module = str(script) == "-m"
    if as_module and not arguments:
        raise UsageError("no module is named", where="-m", remedy="give its name: autocompile run rec/ -m pkg.train")
    script_place(arguments[0] if as_module and arguments else str(script), as_module=as_module)
    command = [sys.executable, "-P", "-m", "autocompile.running", str(recommendation), str(script), *(arguments or ())]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606  the script takes the place of this process
