"""The exception for decode steps that cannot be tuned."""

from __future__ import annotations


class NotTunable(Exception):
    """A model's decode steps cannot be tuned. The message tells why."""
