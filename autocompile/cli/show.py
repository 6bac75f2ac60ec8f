"""`autocompile show DIRECTORY`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    directory: Annotated[Path, typer.Argument(help="Where `tune` or `rec.save()` kept the recommendation.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show a recommendation: the verdict, the table, the reasons, and where the time went."""
    from autocompile.artifact.directory import read_document
    from autocompile.core.serde import to_json

    document = read_document(directory)
    if json:
        print(to_json(document, indent=2).decode())
        return
    from autocompile.report.text import render, terminal

    terminal().print(render(document))
