"""Compare `generate` with a candidate and with the model as it is: tokens, and tokens per second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.generation.utils import GenerationMixin

from autocompile.artifact.integrity import open_manifest
from autocompile.artifact.load import load
from autocompile.artifact.options import Asked
from autocompile.artifact.texts import Part, Texts
from autocompile.core.outcome import Failure, Generated
from autocompile.trial.clock.intervals import median_interval
from autocompile.workload.generating.generation import prompting_of
from autocompile.workload.generating.settings import greedily, planned_tokens

_FEWEST_TOKENS, _FEWEST_PAIRS, _PAIRS = 8, 3, 16
# The share of the time limit for one text on one side.
_SHARE = 1 / 12


@dataclass(frozen=True)
class Side:
    """One side: `generate` takes a text's keyword arguments, and `settle` applies the side's settings before a call."""

    generate: Callable[[Mapping[str, Any]], Any]
    settle: Callable[[], None]


def as_it_is(model: Any, settle: Callable[[], None]) -> Side:
    """Return the side of the model as it is, with transformers' `generate`."""
    return Side(lambda text: GenerationMixin.generate(model, **text), settle)


def with_parts(texts: Texts, settle: Callable[[], None]) -> Side:
    """Return the side of texts whose parts, decode steps or prompts, are made by something else."""
    return Side(lambda text: texts.generate(text, GenerationMixin.generate), settle)


class LoadedPrompts:
    """The recommendation for the prompts of `model`, as it is loaded. Raises what `load` raises if it does not fit."""

    def __init__(self, directory: Path, model: Any) -> None:
        manifest = open_manifest(directory)
        assert manifest.generation is not None, "an artifact for prompts"
        self._loaded = load(directory, prompting_of(model, manifest.generation), Asked(on_mismatch="error"))
        self.part = Part(self._loaded, manifest.generation, manifest.plan.threads)

    def fault(self) -> str:
        """Return why prompts were not served as recommended, or ""."""
        return next((fallback.reason for fallback in self._loaded.status.fallbacks), "")


def generate_beside(
    eager: Side, own: Side, model: Any, texts: Sequence[Mapping[str, Any]], limit_s: float
) -> Generated | Failure:
    """Generate `texts` greedily on both sides, check that all tokens are equal, and time calls of `generate` in pairs.

    Each prompt is also tried with its tokens in another order, as such a prompt was never seen. This takes about
    `limit_s`. If one text would take more than a twelfth of that, it gets fewer tokens, but at least 8 if that many
    were requested. There are at least 3 pairs.
    """
    if not texts:
        return Generated(skipped="no call of generate could be stored for repeating it")
    began, most = time.monotonic(), min(_asked(model, text) for text in texts)
    few = min(_FEWEST_TOKENS, most)
    first = greedily(model, texts[0], few)
    try:
        took_s = _seconds(eager, first)
    except Exception as fault:  # from any processor, criterion or model, some of which accept a text only once
        return Generated(skipped=f"generate cannot be repeated: {type(fault).__name__}: {fault}")
    own.settle()
    own.generate(first)  # compiles, where it has not yet
    tokens = max(few, min(most, int(few * limit_s * _SHARE / took_s)))
    tried = [form for text in texts for form in (text, _reordered(text))]
    compared = 0
    for number, text in enumerate(greedily(model, text, tokens) for text in tried):
        eager.settle()
        expected = _sequences(eager.generate(text))
        own.settle()
        actual = _sequences(own.generate(text))
        difference = _difference(expected, actual, expected.shape[-1] - tokens)
        if difference:
            message = f"generate returns other tokens than eager: {difference}"
            return Failure(stage="verify", kind="wrong_result", message=message)
        compared += tokens * expected.shape[0]
        if time.monotonic() - began > limit_s / 2 and number:
            break
    repeated = [greedily(model, text, tokens) for text in texts]
    return _timed(eager, own, repeated, limit_s - (time.monotonic() - began), compared, tokens)


def _timed(
    eager: Side, own: Side, texts: Sequence[Mapping[str, Any]], left_s: float, compared: int, tokens: int
) -> Generated:
    ratios: list[float] = []
    seconds, made = [0.0, 0.0], 0
    while len(ratios) < _FEWEST_PAIRS or (len(ratios) < _PAIRS and sum(seconds) * (1 + 1 / len(ratios)) < left_s):
        text = texts[len(ratios) % len(texts)]
        sides = (eager, own) if len(ratios) % 2 else (own, eager)
        took = {id(side): _seconds(side, text) for side in sides}
        ratios.append(math.log(took[id(eager)] / took[id(own)]))
        seconds[0] += took[id(eager)]
        seconds[1] += took[id(own)]
        made += tokens * _texts_in(text)
    middle = median_interval(ratios)
    speedup = type(middle)(math.exp(middle.value), math.exp(middle.low), math.exp(middle.high))
    return Generated(
        tokens=compared,
        speedup=speedup,
        baseline_tokens_per_s=made / seconds[0],
        tokens_per_s=made / seconds[1],
    )


def _seconds(side: Side, text: Mapping[str, Any]) -> float:
    side.settle()
    began = time.perf_counter()
    _sequences(side.generate(text)).cpu()
    return time.perf_counter() - began


def _asked(model: Any, text: Mapping[str, Any]) -> int:
    """Return the maximum number of new tokens that were requested for a text."""
    prompt = _prompt_of(text)
    return planned_tokens(model, text, prompt) - prompt


def _reordered(text: Mapping[str, Any]) -> dict[str, Any]:
    name = "inputs" if "inputs" in text else "input_ids"
    prompt = text.get(name)
    return {**text, name: prompt.flip(-1)} if isinstance(prompt, torch.Tensor) else dict(text)


def _texts_in(text: Mapping[str, Any]) -> int:
    prompt = text.get("inputs", text.get("input_ids"))
    return int(prompt.shape[0]) if isinstance(prompt, torch.Tensor) else 1


def _prompt_of(text: Mapping[str, Any]) -> int:
    prompt = text.get("inputs", text.get("input_ids"))
    return int(prompt.shape[-1]) if isinstance(prompt, torch.Tensor) else 0


def _sequences(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output.sequences


def _difference(expected: torch.Tensor, actual: torch.Tensor, prompt: int) -> str:
    """Return where two texts begin to differ, or ""."""
    if expected.shape != actual.shape:
        return f"their shape is {tuple(actual.shape)}, not {tuple(expected.shape)}"
    differing = (expected != actual).nonzero()
    if not len(differing):
        return ""
    row, position = differing[0].tolist()
    told = f"new token {position - prompt + 1} of a text is {int(actual[row, position])}"
    return f"{told}, not {int(expected[row, position])}"
