"""The goal's limits in words."""

from __future__ import annotations

from collections.abc import Mapping

# Beyond so many times a limit, a percentage says nothing.
_MANY_TIMES = 10


def beyond(excess: Mapping[str, float]) -> str:
    """Which limits are broken, and by how much: `max_latency by 12.5%`; "" for none. `excess` is relative to each."""
    return ", ".join(f"{name} by {by(share)}" for name, share in excess.items() if share > 0)


def by(share: float) -> str:
    """An excess relative to its limit, for reading."""
    if share >= _MANY_TIMES:
        return f"a factor of {1 + share:,.0f}"
    return f"{share:.1%}" if share < 1 else f"{share:.0%}"
