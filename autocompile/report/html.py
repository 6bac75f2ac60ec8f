"""A recommendation for reading in a notebook or a browser."""

from __future__ import annotations

import io

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from autocompile.core.document import Document
from autocompile.report.text import WIDTH, render

_FRAME = '<pre style="font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.35">{code}</pre>'


def as_html(document: Document) -> str:
    """The text report as one self-contained HTML fragment, colours inline."""
    console = Console(file=io.StringIO(), width=WIDTH, record=True)
    console.print(render(document))
    return console.export_html(theme=DEFAULT_TERMINAL_THEME, inline_styles=True, code_format=_FRAME)
