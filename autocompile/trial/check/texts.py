"""A candidate's decode step beneath `generate`, beside the model as it is: the same tokens, and how many a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autocompile.artifact.texts import Decode, Texts
from autocompile.core.outcome import Failure, Generated
from autocompile.core.workload import GenerationEntry
from autocompile.trial.clock.intervals import median_interval

# Greedy, as only so tokens can be compared; of what would contradict that or the number of tokens, nothing.
_REPLACED = ("streamer", "max_length", "min_length", "do_sample", "max_new_tokens", "return_dict_in_generate")
_FEWEST_TOKENS, _FEWEST_PAIRS, _PAIRS = 8, 3, 16
# Of the time there is, for one text of one of both.
_SHARE = 1 / 12


@dataclass(frozen=True)
class Side:
    """Who generates, by name of the arguments, and what puts its settings in place."""

    generate: Callable[[Mapping[str, Any]], Any]
    settle: Callable[[], None]


def as_it_is(model: Any, settle: Callable[[], None]) -> Side:
    """The model, and transformers' `generate`."""
    return Side(lambda text: type(model).generate(model, **text), settle)


def with_steps(model: Any, decode: Decode, entry: GenerationEntry, settle: Callable[[], None]) -> Side:
    """The same, with each decode step made by `decode`."""
    texts = Texts(model, decode, entry)
    return Side(lambda text: texts.generate(text, type(model).generate), settle)


def generate_beside(eager: Side, own: Side, texts: Sequence[Mapping[str, Any]], limit_s: float) -> Generated | Failure:
    """Generate `texts` by both, greedily, token by token the same, and time whole calls of `generate` in pairs.

    Also with the tokens of the prompts in another order, as these were never seen. It takes `limit_s` or so: where a
    text would take more than a twelfth of that, it has fewer tokens, but 8 at least; and there are 3 pairs at least.
    """
    if not texts:
        return Generated(skipped="no call of generate could be kept to be repeated")
    began, tried = time.monotonic(), [_greedy(text, _FEWEST_TOKENS) for text in texts]
    own.settle()
    own.generate(tried[0])  # compiles, where it has not yet
    took_s = _seconds(eager, tried[0])
    tokens = max(_FEWEST_TOKENS, min(_asked(texts[0]), int(_FEWEST_TOKENS * limit_s * _SHARE / took_s)))
    tried = [form for text in texts for form in (_greedy(text, tokens), _reordered(_greedy(text, tokens)))]
    compared = 0
    for number, text in enumerate(tried):
        eager.settle()
        expected = _sequences(eager.generate(text))
        own.settle()
        actual = _sequences(own.generate(text))
        fault = _difference(expected, actual, _prompt_of(text))
        if fault:
            message = f"generate gives other tokens than eager: {fault}"
            return Failure(stage="verify", kind="wrong_result", message=message)
        compared += actual.numel() - _prompt_of(text)
        if time.monotonic() - began > limit_s / 2 and number:
            break
    return _timed(eager, own, tried[::2], limit_s - (time.monotonic() - began), compared)


def _timed(eager: Side, own: Side, texts: Sequence[Mapping[str, Any]], left_s: float, compared: int) -> Generated:
    ratios: list[float] = []
    seconds, tokens = [0.0, 0.0], 0
    while len(ratios) < _FEWEST_PAIRS or (len(ratios) < _PAIRS and sum(seconds) * (1 + 1 / len(ratios)) < left_s):
        text = texts[len(ratios) % len(texts)]
        sides = (eager, own) if len(ratios) % 2 else (own, eager)
        took = {id(side): _seconds(side, text) for side in sides}
        ratios.append(math.log(took[id(eager)] / took[id(own)]))
        seconds[0] += took[id(eager)]
        seconds[1] += took[id(own)]
        tokens += int(text["max_new_tokens"])
    middle = median_interval(ratios)
    speedup = type(middle)(math.exp(middle.value), math.exp(middle.low), math.exp(middle.high))
    return Generated(
        tokens=compared,
        speedup=speedup,
        baseline_tokens_per_s=tokens / seconds[0],
        tokens_per_s=tokens / seconds[1],
    )


def _seconds(side: Side, text: Mapping[str, Any]) -> float:
    side.settle()
    began = time.perf_counter()
    _sequences(side.generate(text)).cpu()
    return time.perf_counter() - began


def _greedy(text: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    kept = {name: value for name, value in text.items() if name not in _REPLACED}
    return {**kept, "do_sample": False, "max_new_tokens": tokens, "min_new_tokens": tokens}


def _asked(text: Mapping[str, Any]) -> int:
    """How many new tokens a text was asked for."""
    return int(text.get("max_new_tokens") or 64)


def _reordered(text: dict[str, Any]) -> dict[str, Any]:
    name = "inputs" if "inputs" in text else "input_ids"
    prompt = text.get(name)
    return {**text, name: prompt.flip(-1)} if isinstance(prompt, torch.Tensor) else text


def _prompt_of(text: Mapping[str, Any]) -> int:
    prompt = text.get("inputs", text.get("input_ids"))
    return int(prompt.shape[-1]) if isinstance(prompt, torch.Tensor) else 0


def _sequences(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output.sequences


def _difference(expected: torch.Tensor, actual: torch.Tensor, prompt: int) -> str:
    """Where two texts part, or ""."""
    if expected.shape != actual.shape:
        return f"{tuple(actual.shape)} of them, not {tuple(expected.shape)}"
    differing = (expected != actual).nonzero()
    if not len(differing):
        return ""
    row, position = differing[0].tolist()
    told = f"the {position - prompt + 1}. new one of a text is {int(actual[row, position])}"
    return f"{told}, not {int(expected[row, position])}"
