"""`autocompile run RECOMMENDATION SCRIPT [ARGS...]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def run(
    recommendation: Annotated[Path, typer.Argument(help="Where the recommendation is kept.")],
    script: Annotated[Path, typer.Argument(help="Run as it is.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own.", show_default=False)] = None,
) -> None:
    """Run a script with a recommendation applied to the model that it was tuned for; nothing in it is changed.

    Its output, its exit status and its signals are its own. At the end, standard error has what was served, or what
    was trained as recommended.
    """
    from autocompile.artifact.directory import read_document
    from autocompile.core.errors import UsageError

    read_document(recommendation)
    if not script.is_file():
        raise UsageError("no such script", where=str(script), remedy="give the path of a Python file")
    command = [sys.executable, "-P", "-m", "autocompile.running", str(recommendation), str(script), *(arguments or ())]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606  the script takes the place of this process
