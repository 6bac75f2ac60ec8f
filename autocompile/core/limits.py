"""The goal's limits in words."""

from __future__ import annotations

from collections.abc import Mapping

# If a limit is exceeded by more than this factor, the factor is shown in place of a percentage.
_MANY_TIMES = 10


def beyond(excess: Mapping[str, float]) -> str:
    """Return which limits are exceeded, and by how much: `max_latency by 12.5%`; "" if none is.

    `excess` is relative to each limit.
    """
    return ", ".join(f"{name} by {by(share)}" for name, share in excess.items() if share > 0)


def by(share: float) -> str:
    """Return a relative excess as text."""
    if share >= _MANY_TIMES:
        return f"a factor of {1 + share:,.0f}"
    return f"{share:.1%}" if share < 1 else f"{share:.0%}"
