"""What is seen of a model while it generates: its decode steps, and what `generate` was called with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicLayer, StaticLayer

from autocompile.core.literals import is_literal
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.not_tunable import NotTunable
from autocompile.workload.generating.settings import planned_tokens, reason_against
from autocompile.workload.generating.step_inputs import STEP_INPUTS
from autocompile.workload.samples import Sample

_KEPT_STEPS, _KEPT_TEXTS = 4, 3
# A cache's memory is for a multiple of so many tokens.
_ROUND = 64


@dataclass(frozen=True)
class _Step:
    """The inputs of a decode step, as they were: what is held of keys and values, [batch, heads, tokens, width]."""

    tokens: torch.Tensor
    positions: torch.Tensor | None
    mask: torch.Tensor | None
    held: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    def sample(self, capacity: int) -> Sample:
        """The same as a call of `Decoding`, with memory for so many tokens."""
        batch, length = self.tokens.shape[0], self.held[0][0].shape[-2]
        device = self.tokens.device
        mask = torch.ones(batch, capacity, dtype=torch.bool, device=device)
        if self.mask is not None:
            mask[:, : length + 1] = self.mask[:, : length + 1].bool()
        positions = torch.full((batch, 1), length, device=device) if self.positions is None else self.positions
        caches = tuple((_enlarged(keys, capacity), _enlarged(values, capacity)) for keys, values in self.held)
        return Sample((self.tokens, positions, mask, torch.tensor(length, device=device), caches), {})


def _enlarged(held: torch.Tensor, capacity: int) -> torch.Tensor:
    batch, heads, length, width = held.shape
    room = held.new_zeros(batch, heads, capacity, width)
    room[:, :, :length] = held
    return room


@dataclass
class Generated:
    """What was seen of one model: `steps` after prompts, in `seconds`; the prompts took `prefill_s`.

    `texts`: arguments of its first calls of `generate`. `against`: why it cannot be tuned, or "".
    """

    model: nn.Module
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    prefill_s: float = 0.0
    against: str = ""
    texts: list[dict[str, Any]] = field(default_factory=list)
    _arguments: Mapping[str, Any] = field(default_factory=dict)
    _kept: list[_Step] = field(default_factory=list)
    _every: int = 1
    _options: dict[str, str] | None = None
    _prompt: int = 0
    _longest: int = 0
    _planned: int = 0
    _ended: bool = False

    @contextmanager
    def text(self, arguments: Mapping[str, Any]) -> Iterator[None]:
        """A call of `generate` with these arguments happens within."""
        self.calls += 1
        self.against = self.against or reason_against(self.model, arguments)
        self._arguments = arguments
        if len(self.texts) < _KEPT_TEXTS:
            self.texts.append(_repeatable(arguments))
        yield
        self._ended = True

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]) -> Any:
        """A call of the model within such a one."""
        held = _held_in(kwargs.get("past_key_values"))
        tokens = kwargs.get("decoder_input_ids", kwargs.get("input_ids"))
        is_step = bool(held) and isinstance(tokens, torch.Tensor) and tokens.shape[1] == 1
        if is_step and not self.against:
            self._keep(args, kwargs, held)
        began = time.perf_counter()
        try:
            return made(self.model, *args, **kwargs)
        finally:
            took = time.perf_counter() - began
            if is_step:
                self.steps += 1
                self.seconds += took
            else:
                self.prefill_s += took
                self._prompt = 0

    def _keep(self, args: tuple[Any, ...], kwargs: dict[str, Any], held: int) -> None:
        if not self._prompt:
            self._prompt = held
            self._planned = max(self._planned, planned_tokens(self.model, self._arguments, held))
        self._longest = max(self._longest, held + 1)
        if self.steps % self._every:
            return
        options = {n: v for n, v in kwargs.items() if n not in STEP_INPUTS and v is not None}
        self.against = _reason(args, kwargs, options) or _differs(self._options, options)
        if self.against:
            return
        self._options = {name: repr(value) for name, value in options.items()}
        self._kept.append(_step_of(kwargs, held))
        if len(self._kept) > 2 * _KEPT_STEPS:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def entry(self) -> GenerationEntry:
        """In numbers. Raises NotTunable."""
        if self.against:
            raise NotTunable(self.against)
        if not self._kept:
            raise NotTunable("no token was generated after the first one")
        longest = self._planned if not self._ended else min(self._planned, 2 * self._longest)
        return GenerationEntry(
            module=type(self.model).__name__,
            texts=self.calls,
            prompt_tokens=self._kept[0].held[0][0].shape[-2],
            new_tokens=self.steps,
            prefill_share=self.prefill_s / (self.prefill_s + self.seconds),
            capacity=-(-max(longest, self._longest) // _ROUND) * _ROUND,
            layers=len(self._kept[0].held),
            options=self._options or {},
        )

    def samples(self, capacity: int) -> tuple[Sample, ...]:
        """Decode steps, evenly over those that were seen."""
        every = max(1, len(self._kept) // _KEPT_STEPS)
        return tuple(step.sample(capacity) for step in self._kept[::every][:_KEPT_STEPS])


def _held_in(cache: Any) -> int:
    """How many tokens a cache holds; 0 for what is none."""
    length = getattr(cache, "get_seq_length", None)
    return int(length()) if length is not None else 0


def _reason(args: tuple[Any, ...], kwargs: dict[str, Any], options: Mapping[str, Any]) -> str:
    layers = getattr(kwargs["past_key_values"], "layers", None)
    if layers is None:
        return f"its cache is a {type(kwargs['past_key_values']).__name__}, which is not transformers' own"
    other = next((type(one).__name__ for one in layers if type(one) not in (DynamicLayer, StaticLayer)), "")
    if other:
        return f"its cache has a {other}, and only those that keep all tokens are tuned"
    unknown = next((name for name, value in options.items() if not is_literal(value)), "")
    if unknown:
        return f"its decode step takes {unknown}, a {type(options[unknown]).__name__}"
    return "its decode step takes arguments by position" if args else ""


def _differs(before: Mapping[str, str] | None, options: Mapping[str, Any]) -> str:
    now = {name: repr(value) for name, value in options.items()}
    return "" if before is None or before == now else f"its decode steps are called otherwise: {now}, then {before}"


def _step_of(kwargs: Mapping[str, Any], held: int) -> _Step:
    layers = kwargs["past_key_values"].layers
    mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
    if mask is not None and mask.dim() == 4:  # for a static cache, whose queries come third
        mask = mask[:, 0, -1]
    return _Step(
        kwargs["input_ids"].clone(),
        None if positions is None else positions.clone(),
        None if mask is None else mask.clone(),
        tuple((one.keys[:, :, :held].clone(), one.values[:, :, :held].clone()) for one in layers),
    )


def _repeatable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of another such call; nobody is shown the tokens of it."""
    return {name: _own(value) for name, value in arguments.items() if name != "streamer"}


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
