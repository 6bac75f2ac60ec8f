"""`autocompile --version`."""

from __future__ import annotations

from typing import Annotated

from typer import Exit, Option


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version as version_of

        print(f"autocompile {version_of('torch-autocompile')}")
        raise Exit


def version(
    show: Annotated[
        bool, Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Find the fastest correct way to run a PyTorch model, by measuring."""
