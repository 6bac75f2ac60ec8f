"""`autocompile schema`."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of the output of `tune --json` and `show --json`."""
    from autocompile.core.schema import document_schema

    print(document_schema())
