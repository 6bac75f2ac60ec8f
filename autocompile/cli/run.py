"""`autocompile run RECOMMENDATION SCRIPT [ARGS...]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def run(
    recommendation: Annotated[Path, typer.Argument(help="The directory of the recommendation.")],
    script: Annotated[Path, typer.Argument(help="The script, unchanged; or `-m` and a module's name, as for Python.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script.", show_default=False)] = None,
) -> None:
    """Run an unchanged script with a recommendation applied to the model that was tuned.

    Output, exit status and signals are the script's own. At its end, a summary is printed on standard error.
    """
    from autocompile.artifact.directory import read_document
    from autocompile.core.errors import UsageError
    from autocompile.workload.capture.place import script_place

    read_document(recommendation)
    as_module, own = str(script) == "-m", arguments or []
    if as_module and not own:
        raise UsageError("needs a module's name", where="-m", remedy="give one: autocompile run rec/ -m pkg.train")
    script_place(own[0] if as_module else str(script), as_module=as_module)
    named, given = (own[:1], own[1:]) if as_module else ([], own)
    own = [*named, *_without_separator(given)]
    command = [sys.executable, "-P", "-m", "autocompile.running", str(recommendation), str(script), *own]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606  replaces this process by the script's


def _without_separator(arguments: list[str]) -> list[str]:
    """Return the arguments without a leading `--`, which the other commands need before a script's arguments."""
    return arguments[1:] if arguments[:1] == ["--"] else arguments
