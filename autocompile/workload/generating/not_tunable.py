"""That a model's decode steps cannot be tuned."""

from __future__ import annotations


class NotTunable(Exception):  # noqa: N818  a reason, told to the user
    """Why they cannot."""
