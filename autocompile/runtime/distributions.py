"""Runtimes that other distributions provide. Does not import torch.

A runtime that cannot be imported is left out with one warning. Everything else goes on working.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from autocompile.core.caution import warn
from autocompile.core.errors import InvalidValue
from autocompile.runtime.kind import Kind

GROUP = "autocompile.runtimes"
OURS = "autocompile"


@dataclass(frozen=True)
class Brought:
    """A runtime, and the distribution that provides it."""

    kind: Kind
    distribution: str


@dataclass(frozen=True)
class Found:
    """All runtimes that were found, by name.

    `broken` has one line with the reason for each that could not be imported.
    """

    brought: dict[str, Brought]
    broken: tuple[str, ...]


@cache
def found(own: tuple[str, ...]) -> Found:
    """Find the runtimes of other distributions; `own` are the names of our runtimes.

    Raises InvalidValue if two have the same name.
    """
    return _sorted_out(entry_points(group=GROUP), own)


def _sorted_out(entries: Iterable[EntryPoint], own: tuple[str, ...]) -> Found:
    owners = dict.fromkeys(own, OURS)
    brought: dict[str, Brought] = {}
    broken = []
    for entry in entries:
        distribution = entry.dist.name if entry.dist else entry.value
        kind = _loaded(entry, distribution)
        if isinstance(kind, str):
            warn(f"{kind}; it is left out")
            broken.append(kind)
            continue
        if kind.name in owners:
            raise InvalidValue(
                f"there are two runtimes {kind.name!r}: of {owners[kind.name]} and of {distribution}",
                where="runtime",
                remedy="uninstall one of them",
            )
        owners[kind.name] = distribution
        brought[kind.name] = Brought(kind, distribution)
    return Found(brought, tuple(broken))


def _loaded(entry: EntryPoint, distribution: str) -> Kind | str:
    """Return the entry's Kind, or the reason why it has none."""
    named = f"the runtime {entry.name!r} of {distribution}"
    try:
        kind = entry.load()
    except Exception as fault:  # code of another distribution may raise anything
        return f"{named} cannot be imported ({type(fault).__name__}: {fault})"
    if not isinstance(kind, Kind):
        return f"{named} is a {type(kind).__name__}, not a Kind"
    return kind
