"""Paths in the repository."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
