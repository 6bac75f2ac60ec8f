"""Record the calls for prompts that a model gets while it generates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from autocompile.core.literals import is_literal
from autocompile.workload.generating.cache_argument import cache_in
from autocompile.workload.generating.step_inputs import STEP_INPUTS
from autocompile.workload.samples import Sample

_KEPT = 8


@dataclass(frozen=True)
class Prompt:
    """A copy of a prompt: tokens, positions and mask, [batch, tokens] each; the mask is None if there is no padding."""

    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor | None

    @property
    def is_padded(self) -> bool:
        """Whether there is padding."""
        return self.mask is not None

    def sample(self, *, padded: bool) -> Sample:
        """Return the prompt as a call of `Prompting`, with a mask if prompts are `padded`."""
        masks = (masked(self.mask, self.tokens),) if padded else ()
        return Sample((self.tokens, self.positions, *masks), {})


def prompt_of(arguments: Mapping[str, Any]) -> Prompt | None:
    """Return the prompt in the arguments of a call of the model; None if the arguments are of another kind."""
    tokens, positions, mask = (arguments.get(name) for name in ("input_ids", "position_ids", "attention_mask"))
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2:
        return None
    if positions is None:
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
    if positions.shape[-1] != tokens.shape[1] or positions.dim() != 2:
        return None
    if mask is not None and (mask.shape != tokens.shape or mask.is_floating_point()):
        return None
    is_padded = mask is not None and not bool(mask.all())
    return Prompt(tokens, positions.expand(tokens.shape), mask if is_padded else None)


def masked(mask: torch.Tensor | None, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mask as `Prompting` takes it."""
    return torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()


def options_of(arguments: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the further arguments of a call for a prompt as literals; None if one of them cannot be written as one."""
    others = {name: value for name, value in arguments.items() if name not in STEP_INPUTS and value is not None}
    return {name: repr(value) for name, value in others.items()} if all(map(is_literal, others.values())) else None


@dataclass
class SeenPrompts:
    """The prompts of a model that were seen; `fault` tells why they cannot be tuned, or ""."""

    fault: str = ""
    options: dict[str, str] | None = None
    _kept: list[Prompt] = field(default_factory=list)
    _seen: int = 0
    _every: int = 1

    @property
    def reason(self) -> str:
        """Why they cannot be tuned, or ""."""
        return self.fault or ("" if self._kept else "no prompt was seen")

    def look(self, args: tuple[Any, ...], arguments: Mapping[str, Any]) -> None:
        """Record a call for a prompt. Prompts are thinned out evenly, as there may be any number."""
        if self.fault:
            return
        prompt, options = prompt_of(arguments), options_of(arguments)
        if args or prompt is None or options is None or cache_in(arguments) is None:
            self.fault = "the calls for them take arguments of a kind that is not supported"
        elif self.options not in (None, options):
            self.fault = f"the calls for them take {options}, before {self.options}"
        else:
            self.options = options
            self._keep(prompt)

    def samples(self) -> tuple[tuple[Sample, ...], bool]:
        """Return the recorded calls of `Prompting`, and whether they take a mask."""
        chosen = self._kept[:: -(-len(self._kept) // _KEPT) or 1]
        padded = any(prompt.is_padded for prompt in chosen)
        return tuple(prompt.sample(padded=padded) for prompt in chosen), padded

    def _keep(self, prompt: Prompt) -> None:
        self._seen += 1
        if (self._seen - 1) % self._every:
            return
        held = (prompt.tokens.clone(), prompt.positions.clone())
        self._kept.append(Prompt(*held, None if prompt.mask is None else prompt.mask.clone()))
        if len(self._kept) > 2 * _KEPT:
            self._kept, self._every = self._kept[::2], 2 * self._every
