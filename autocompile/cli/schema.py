"""`autocompile schema`."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of what `tune --json` and `show --json` print."""
    from autocompile.core.schema import document_schema

    print(document_schema())
