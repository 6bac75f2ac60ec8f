"""Recognize the constants that the compiler copies to another device, by the names of the copies.

If a program uses a constant on a device other than its own, the compiler copies it ahead of time and names the copy
after the original and the device: `lifted_0` on the first GPU is `lifted_0_cuda0` (torch 2.13,
`GraphLowering.constant_name`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

_COPY = re.compile(r"(?P<original>\w+)_(?P<type>[a-z]+)(?P<index>\d+)")


def copied_from(name: str, originals: Iterable[str]) -> tuple[str, str]:
    """Return which of `originals` the constant `name` is a copy of, and the copy's device, or "" twice.

    In the compiler's names, `_` replaces every character other than letters, digits and `_`.
    """
    match = _COPY.fullmatch(name)
    if match is None:
        return "", ""
    found = next((one for one in originals if _normalized(one) == match["original"]), "")
    return (found, f"{match['type']}:{match['index']}") if found else ("", "")


def held_constants(names: Iterable[str], own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return those of a program's constants that are in `own`, copied to another device if they are used there."""
    held = {}
    for name in names:
        original, device = (name, "") if name in own else copied_from(name, own)
        if original:
            held[name] = own[original].to(device) if device else own[original]
    return held


def _normalized(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
