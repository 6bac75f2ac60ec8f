"""Print a report, or turn it into plain text."""

from __future__ import annotations

import io
import sys

from rich.console import Console, RenderableType

WIDTH = 120


def plain_text(rendered: RenderableType) -> str:
    """Return `rendered` as text without colours or trailing blanks, at most 120 columns wide."""
    console = Console(file=io.StringIO(), width=WIDTH, no_color=True, force_terminal=False)
    console.print(rendered)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


def to_terminal(rendered: RenderableType) -> None:
    """Print to standard output, as wide as the terminal; as plain text if it is not a terminal."""
    console = Console()
    if console.is_terminal:
        console.print(rendered)
    else:
        sys.stdout.write(plain_text(rendered))
