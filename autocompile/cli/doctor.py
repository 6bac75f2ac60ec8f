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
    """Check this machine: what is unavailable, why, and the command that fixes it.

    The exit status is 1 if anything is missing that is not an optional extra.
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
        # As Text, because rich takes brackets in a string for markup and would drop those of `pip install x[extra]`.
        table.add_row(Text(*_MARKS[finding.state]), *map(Text, (finding.subject, finding.found, finding.remedy)))
    console.print(table)
    if any(finding.state == "missing" for finding in findings):
        sys.exit(1)
