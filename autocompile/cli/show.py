"""`autocompile show DIRECTORY`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    directory: Annotated[Path, typer.Argument(help="Where `tune` or `rec.save()` kept the recommendation.")],
    calls: Annotated[
        int | None, typer.Option(help="Rank the candidates again, for a process that makes this many calls.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show a recommendation: the verdict, the table, the reasons, and where the time went."""
    from autocompile.artifact.directory import read_document
    from autocompile.core.serde import to_json

    document = read_document(directory)
    if calls is not None:
        from autocompile.search.judge.standings import at_calls

        document = at_calls(document, calls)
    if json:
        print(to_json(document, indent=2).decode())
        return
    from autocompile.report.plain import to_terminal
    from autocompile.report.text import render

    to_terminal(render(document))
