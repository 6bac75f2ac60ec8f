"""The report as HTML, for a notebook or a browser."""

from __future__ import annotations

import io
from html import escape

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from autocompile.core.document import Document
from autocompile.report.drawing import envelope_svg
from autocompile.report.plain import WIDTH
from autocompile.report.text import render

_FRAME = '<pre style="font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.35">{code}</pre>'
_PAGE = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
    '<body style="background:#fff;color:#222;margin:2em">{body}</body></html>\n'
)


def as_html(document: Document) -> str:
    """Return the full report and the plot of the envelope as one self-contained HTML fragment, colours inline."""
    console = Console(file=io.StringIO(), width=WIDTH, record=True)
    console.print(render(document))
    text = console.export_html(theme=DEFAULT_TERMINAL_THEME, inline_styles=True, code_format=_FRAME)
    return f"{text}{envelope_svg(document)}"


def as_page(document: Document) -> str:
    """Return the same as a whole page: `report.html` in a recommendation's directory."""
    return _PAGE.format(title=f"autocompile: {escape(document.workload.name)}", body=as_html(document))
