"""Constants that the compiler copies to another device, by the names that it gives to the copies.

Where a program uses a constant on another device than the one where it lies, the compiler makes a copy of it ahead of
time and names it after the original and the device: `lifted_0` on the first GPU is `lifted_0_cuda0` (torch 2.13,
`GraphLowering.constant_name`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

_COPY = re.compile(r"(?P<original>\w+)_(?P<type>[a-z]+)(?P<index>\d+)")


def copied_from(name: str, originals: Iterable[str]) -> tuple[str, str]:
    """Of `originals`, the one that a constant of this `name` is a copy of, and the device it is for; or "" twice.

    Within a name of the compiler's every other character than letters, digits and `_` is `_`.
    """
    match = _COPY.fullmatch(name)
    if match is None:
        return "", ""
    found = next((one for one in originals if _normalized(one) == match["original"]), "")
    return (found, f"{match['type']}:{match['index']}") if found else ("", "")


def held_constants(names: Iterable[str], own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a program's constants that are its `own`: as they are, or copied to the device they are used on."""
    held = {}
    for name in names:
        original, device = (name, "") if name in own else copied_from(name, own)
        if original:
            held[name] = own[original].to(device) if device else own[original]
    return held


def _normalized(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
