"""`autocompile doctor`."""

from __future__ import annotations

import sys

_MARKS = {
    "good": ("ok", "green"),
    "poor": ("!", "yellow"),
    "optional": ("-", "dim"),
    "missing": ("no", "red"),
}


def doctor() -> None:
    """Check this machine: what will be unavailable, why, and the command that mends it.

    Exit status 1 if something is missing that is no extra.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from autocompile.checkup import check_up

    console = Console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "what", "found", "what to do"):
        table.add_column(name, overflow="fold")
    findings = check_up()
    for finding in findings:
        # Text, as brackets in a string are markup to rich: those of an extra would be left out.
        table.add_row(Text(*_MARKS[finding.state]), *map(Text, (finding.subject, finding.found, finding.remedy)))
    console.print(table)
    if any(finding.state == "missing" for finding in findings):
        sys.exit(1)
