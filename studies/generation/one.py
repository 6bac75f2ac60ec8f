"""Generate text in one way, in a separate process: python one.py WAY MODEL RECOMMENDATION SECONDS.

Prints one line of JSON: tokens per second over whole calls of `generate` after the first calls, the seconds of the
first call (start-up included), and the tokens of the first text.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from models import WORKLOADS, made
from torch import nn

import autocompile


def eager(model: nn.Module, _rec: str) -> Any:
    """Return the unmodified model."""
    return model


def bf16(model: nn.Module, _rec: str) -> Any:
    """Return the model with its weights in bfloat16."""
    return model.bfloat16()


def compiled(model: nn.Module, _rec: str) -> Any:
    """Use a static cache and `torch.compile`, as the documentation of transformers recommends."""
    model.generation_config.cache_implementation = "static"
    model.forward = torch.compile(model.forward)
    return model


def ours(model: nn.Module, rec: str) -> Any:
    """Load the recommendation."""
    return autocompile.load(rec, model)


WAYS: dict[str, Callable[[nn.Module, str], Any]] = {"eager": eager, "bf16": bf16, "compiled": compiled, "ours": ours}


def main() -> None:
    """Generate and print the measurements."""
    way, name, rec, seconds = sys.argv[1:]
    work, model = WORKLOADS[name], made(name)
    texts, asked = work.prompts(64), work.asked
    began = time.perf_counter()
    generating = WAYS[way](model, rec)
    first = generating.generate(texts[0], **asked)[0].tolist()
    first_s = time.perf_counter() - began
    for text in texts[1:3]:
        generating.generate(text, **asked)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < float(seconds):
        generating.generate(texts[3 + count % 60], **asked)
        count += 1
    rate = count * work.new / (time.perf_counter() - began)
    print(json.dumps({"tokens_per_s": rate, "first_s": first_s, "tokens": first}))


if __name__ == "__main__":
    main()
