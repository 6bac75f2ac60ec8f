"""That a model's decode steps cannot be tuned."""

from __future__ import annotations


class NotTunable(Exception):
    """Why they cannot."""
