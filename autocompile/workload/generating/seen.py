"""Record what a model does while it generates: its decode steps, and the arguments of `generate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicLayer, StaticLayer

from autocompile.core.literals import is_literal
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.cache_argument import cache_in
from autocompile.workload.generating.not_tunable import NotTunable
from autocompile.workload.generating.seen_prompts import SeenPrompts
from autocompile.workload.generating.settings import planned_tokens, reason_against
from autocompile.workload.generating.step_inputs import STEP_INPUTS
from autocompile.workload.samples import Sample
from autocompile.workload.spans import when_done

_KEPT_STEPS, _KEPT_TEXTS = 4, 3
# The maximum memory of all kept steps. The first step may exceed it.
_MOST_BYTES = 1024**3
# A cache's capacity is a multiple of the first number of tokens. If no text was completed, it is planned for no more
# than the second number.
_ROUND, _MOST_UNSEEN = 64, 2048
# Prompts that take less than this share of the time of generating are not tuned.
_LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Step:
    """Copies of the inputs of a decode step. `held` has keys and values, [batch, heads, tokens, width]."""

    tokens: torch.Tensor
    positions: torch.Tensor | None
    mask: torch.Tensor | None
    held: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @property
    def length(self) -> int:
        """How many tokens the cache holds."""
        return int(self.held[0][0].shape[-2])

    @property
    def token_bytes(self) -> int:
        """The cache memory per token in bytes."""
        return sum(one.numel() * one.element_size() for pair in self.held for one in pair) // self.length

    def sample(self, capacity: int) -> Sample:
        """Return the step as a call of `Decoding`, with memory for `capacity` tokens."""
        batch, length, device = self.tokens.shape[0], self.length, self.tokens.device
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
    """What was seen of one model: `steps` after prompts, which took `seconds`. The prompts took `prefill_s`.

    `prompts` has the calls for prompts. `texts` are the arguments of the first of its `calls` of `generate`. `left`
    counts the calls that cannot be tuned, by reason. `autocast` is the dtype of the autocast around its steps, or "".
    The maximum number of tokens of a text is `longest`, the maximum that was allowed is `planned`, and that of a prompt
    is `prompt`. `ended` tells whether a text was completed.
    """

    model: nn.Module
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    prefill_s: float = 0.0
    autocast: str = ""
    texts: list[dict[str, Any]] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    options: dict[str, str] | None = None
    prompt: int = 0
    longest: int = 0
    planned: int = 0
    ended: bool = False
    prompts: SeenPrompts = field(default_factory=SeenPrompts)
    _kept: list[Step] = field(default_factory=list)
    _every: int = 1

    def wants(self, size: int) -> bool:
        """Return whether to keep the next step, whose copy takes `size` bytes.

        Steps are thinned out evenly, as there may be any number.
        """
        is_room = not self._kept or size * (len(self._kept) + 1) <= _MOST_BYTES
        return is_room and not self.steps % self._every

    def keep(self, step: Step) -> None:
        """Keep this step."""
        self._kept.append(step)
        if len(self._kept) > 2 * _KEPT_STEPS:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def entry(self) -> GenerationEntry:
        """Return the facts about the generation. Raises NotTunable if no step was kept."""
        if not self._kept:
            reason = next((reason for reason, _count in self.left.most_common()), "")
            raise NotTunable(reason or "no token was generated after the first one")
        return GenerationEntry(
            module=type(self.model).__name__,
            texts=self.calls,
            prompt_tokens=self.prompt,
            new_tokens=self.steps,
            prefill_share=self.prefill_share,
            capacity=self._capacity,
            layers=len(self._kept[0].held),
            options=self.options or {},
        )

    @property
    def prefill_share(self) -> float:
        """The share of the time of generating that prompts took."""
        return self.prefill_s / (self.prefill_s + self.seconds)

    @property
    def prompts_left(self) -> str:
        """Why prompts are not tuned, or ""."""
        return "they take little time" if self.prefill_share < _LEAST_SHARE else self.prompts.reason

    @property
    def _capacity(self) -> int:
        """The capacity for what was asked for, but at most twice what was needed.

        More memory means more work in each step.
        """
        likely = 2 * self.longest if self.ended else max(2 * self.longest, _MOST_UNSEEN)
        most = getattr(getattr(self.model, "config", None), "max_position_embeddings", None) or self.planned
        return -(-max(min(self.planned, likely, most), self.longest) // _ROUND) * _ROUND

    def samples(self, capacity: int) -> tuple[Sample, ...]:
        """Return decode steps, evenly chosen from those that were kept."""
        affordable = max(1, _MOST_BYTES // (self._kept[0].token_bytes * capacity))
        count = min(_KEPT_STEPS, affordable)
        every = max(1, len(self._kept) // count)
        return tuple(step.sample(capacity) for step in self._kept[::every][:count])


class Text:
    """One call of `generate`. It is recorded in `generated`, as far as its steps can be tuned."""

    def __init__(self, generated: Generated, arguments: Mapping[str, Any]) -> None:
        self._generated, self._arguments, self._prompt = generated, arguments, 0
        self.model = generated.model
        self._reason = reason_against(generated.model, arguments)
        if self._reason:
            generated.left[self._reason] += 1
            return
        generated.calls += 1
        if len(generated.texts) < _KEPT_TEXTS:
            generated.texts.append(_repeatable(arguments))

    def ended(self) -> None:
        """Record that the text was completed."""
        self._generated.ended = self._generated.ended or not self._reason

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]) -> Any:
        """Make a call of the model within this call of `generate`."""
        held, tokens = _held_in(cache_in(kwargs)), kwargs.get("input_ids")
        is_step = bool(held) and isinstance(tokens, torch.Tensor) and tokens.shape[1] == 1
        if is_step and not self._reason:
            self._look(args, kwargs, held)
        elif not held and not self._reason:
            self._look_at_prompt(args, kwargs)
        began = when_done()
        try:
            return made(self.model, *args, **kwargs)
        finally:
            self._took(when_done() - began, is_step=is_step)

    def _took(self, seconds: float, *, is_step: bool) -> None:
        if self._reason:
            return
        if is_step:
            self._generated.steps += 1
            self._generated.seconds += seconds
        else:
            self._generated.prefill_s += seconds
            self._prompt = 0

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any], held: int) -> None:
        """Record a decode step.

        What cannot be recorded becomes a reason, because nothing may raise into the program.
        """
        generated, options = (
            self._generated,
            {n: v for n, v in kwargs.items() if n not in STEP_INPUTS and v is not None},
        )
        try:
            reason = _reason(args, kwargs, options) or _differs(generated.options, options)
            if not reason:
                self._measure(held)
                generated.options = {name: repr(value) for name, value in options.items()}
                generated.autocast = _autocast(kwargs["input_ids"].device.type)
                if generated.wants(_size_of(kwargs, held)):
                    generated.keep(_step_of(kwargs, held))
        except Exception as fault:  # caches and models of any kind may raise
            reason = f"its decode step cannot be recorded: {type(fault).__name__}: {fault}"
        if reason:
            self._reason = reason
            generated.left[reason] += 1

    def _look_at_prompt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        prompts = self._generated.prompts
        try:
            prompts.look(args, kwargs)
        except Exception as fault:  # arguments of any kind may raise
            prompts.fault = f"the calls for them cannot be recorded: {type(fault).__name__}: {fault}"

    def _measure(self, held: int) -> None:
        generated = self._generated
        if not self._prompt:
            self._prompt = held
            generated.prompt = max(generated.prompt, held)
            generated.planned = max(generated.planned, planned_tokens(self.model, self._arguments, held))
        generated.longest = max(generated.longest, held + 1)


def _held_in(cache: Any) -> int:
    """Return the number of tokens in a cache, or 0 if it is not a cache."""
    length = getattr(cache, "get_seq_length", None)
    return int(length()) if length is not None else 0


def _reason(args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    cache = cache_in(kwargs)
    layers = getattr(cache, "layers", None)
    if layers is None:
        return f"its cache is a {type(cache).__name__}, which is not transformers' own"
    other = next((type(one).__name__ for one in layers if type(one) not in (DynamicLayer, StaticLayer)), "")
    if other:
        return f"its cache has a {other}, and only layers that keep all tokens are supported"
    if not all(one.is_initialized for one in layers):
        return "its cache has empty layers"
    unknown = next((name for name, value in options.items() if not is_literal(value)), "")
    if unknown:
        return f"its decode step takes {unknown}, a {type(options[unknown]).__name__}"
    return "its decode step takes arguments by position" if args else ""


def _differs(before: Mapping[str, str] | None, options: Mapping[str, Any]) -> str:
    now = {name: repr(value) for name, value in options.items()}
    return "" if before is None or before == now else f"its decode steps are called with {now}, before with {before}"


def _autocast(device_type: str) -> str:
    if not torch.is_autocast_enabled(device_type):
        return ""
    return str(torch.get_autocast_dtype(device_type)).removeprefix("torch.")


def _size_of(kwargs: Mapping[str, Any], held: int) -> int:
    """Return the bytes of the keys and values that a cache holds."""
    both = (states for one in cache_in(kwargs).layers for states in (one.keys, one.values))
    return sum(held * (states.numel() // states.shape[-2]) * states.element_size() for states in both)


def _step_of(kwargs: Mapping[str, Any], held: int) -> Step:
    layers = cache_in(kwargs).layers
    mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
    if mask is not None and mask.dim() == 4:  # for a static cache; the third axis is the queries
        mask = mask[:, 0, -1]
    return Step(
        kwargs["input_ids"].clone(),
        None if positions is None else positions.clone(),
        None if mask is None else mask.clone(),
        tuple((one.keys[:, :, :held].clone(), one.values[:, :, :held].clone()) for one in layers),
    )


def _repeatable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for repeating the call, without a streamer, which would show the tokens."""
    return {name: _own(value) for name, value in arguments.items() if name != "streamer"}


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
