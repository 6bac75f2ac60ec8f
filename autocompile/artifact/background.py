"""Serve calls eager while a thread compiles for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.artifact.serving import Server, Tally
from autocompile.core.serving import Serving
from autocompile.runtime.built import Built
from autocompile.runtime.guards import Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.workload.samples import Sample, clone

# The most kinds of call that are compiled. A compiler has a similar limit.
_MOST_KINDS = 16


class Background:
    """Serves a kind of call eager until a thread has compiled for it, and compiled from then on."""

    def __init__(self, built: Built, eager: Server, watch: Watch, tally: Tally, serving: Serving, label: str) -> None:
        self.serving, self.label = serving, label
        self._built, self._eager, self._watch, self._tally = built, eager, watch, tally
        self._ready: set[Hashable] = set()
        self._asked: set[Hashable] = set()
        self._waiting: deque[tuple[Hashable, Sample, bool]] = deque()
        self._asking = threading.Lock()
        self._compiling = False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            kind = _kind_of(args, kwargs)
        except Exception:  # arguments that cannot be described are left to the model
            return self._eager(args, kwargs)
        changed = self._watch.changed()
        if changed:
            self._tally.refused(Refusal("model", changed))
            return self._eager(args, kwargs)
        if kind in self._ready:
            output = self._built(*args, **kwargs)
            self._tally.served(self.serving)
            return output
        self._ask(kind, args, kwargs)
        return self._eager(args, kwargs)

    def _ask(self, kind: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have this kind compiled, unless that was requested before. The thread ends when no kind is waiting."""
        with self._asking:
            if kind in self._asked or len(self._asked) >= _MOST_KINDS:
                return
            self._asked.add(kind)
            self._waiting.append((kind, clone(Sample(args, kwargs)), torch.is_inference_mode_enabled()))
            if not self._compiling:
                self._compiling = True
                threading.Thread(target=self._compile, name="autocompile", daemon=True).start()

    def _compile(self) -> None:
        while True:
            with self._asking:
                if not self._waiting:
                    self._compiling = False
                    return
                kind, sample, in_inference_mode = self._waiting.popleft()
            try:
                with torch.inference_mode(in_inference_mode):
                    self._built(*sample.args, **sample.kwargs)
            except Exception as fault:  # any exception of a compiler or a model; callers are served eager
                self._tally.refused(Refusal("compiler", f"compiling in the background failed: {fault}"))
            else:
                self._ready.add(kind)


def _kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Return a key that is equal for calls that one compilation serves."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    described = tuple(
        (leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.device) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in leaves
    )
    return described, str(spec), torch.is_inference_mode_enabled()
