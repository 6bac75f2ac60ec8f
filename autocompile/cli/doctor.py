"""`autocompile doctor`."""

from __future__ import annotations

import sys


def doctor() -> None:
    """Check this machine: what will be unavailable, why, and the command that mends it."""
    from rich.console import Console
    from rich.table import Table

    from autocompile.checkup import check_up

    console = Console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "what", "found", "what to do"):
        table.add_column(name, overflow="fold")
    findings = check_up()
    for finding in findings:
        mark = {"good": "[green]ok[/]", "poor": "[yellow]![/]", "missing": "[red]no[/]"}[finding.state]
        table.add_row(mark, finding.subject, finding.found, finding.remedy)
    console.print(table)
    if any(finding.state == "missing" for finding in findings):
        sys.exit(1)
