"""What is compiled while it is built, built in production: at its first call, for which it is compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from autocompile.runtime.base import NotPackable
from autocompile.runtime.built import Built
from autocompile.workload.samples import Sample, clone

# Kinds of call that are built for, at most: beyond so many a compiler in the process gives up, too.
_MOST_KINDS = 16


class BuiltWhenCalled:
    """Builds for a call that nothing was built for yet; the first call raises what building raises.

    `eager` serves a later one that it cannot build for, and all others where there are too many kinds of call.
    """

    def __init__(self, build: Callable[[Sample], Built], eager: Built) -> None:
        self._build, self._eager = build, eager
        self._built: tuple[Built, ...] = ()
        self._building = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tried = self._built
        for built in tried:
            try:
                return built(*args, **kwargs)
            except NotPackable:  # it is for calls of another kind
                continue
        return self._built_for(Sample(args, kwargs), len(tried))

    def _built_for(self, sample: Sample, tried: int) -> Any:
        with self._building:
            for built in self._built[tried:]:  # by another thread meanwhile
                try:
                    return built(*sample.args, **sample.kwargs)
                except NotPackable:
                    continue
            if len(self._built) < _MOST_KINDS:
                try:
                    built = self._build(clone(sample))
                except Exception:  # a compiler's, or the model's own, which eager raises again
                    if not self._built:
                        raise
                else:
                    self._built = (*self._built, built)
                    return built(*sample.args, **sample.kwargs)
        return self._eager(*sample.args, **sample.kwargs)
