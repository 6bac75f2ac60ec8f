"""A model for a runtime that compiles during the build, built in production at its first call and for that call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from autocompile.runtime.base import NotPackable
from autocompile.runtime.built import Built
from autocompile.workload.samples import Sample, clone

# The largest number of different kinds of call to build for. torch.compile has a similar limit.
_MOST_KINDS = 16


class BuiltWhenCalled:
    """Build for each call that does not fit anything built so far.

    If the first build fails, the call raises its exception. If a later build fails, or if there are too many kinds of
    call, `eager` serves these calls.
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
            except NotPackable:  # it was built for another kind of call
                continue
        return self._built_for(Sample(args, kwargs), len(tried))

    def _built_for(self, sample: Sample, tried: int) -> Any:
        with self._building:
            for built in self._built[tried:]:  # built by another thread in the meantime
                try:
                    return built(*sample.args, **sample.kwargs)
                except NotPackable:
                    continue
            if len(self._built) < _MOST_KINDS:
                try:
                    built = self._build(clone(sample))
                except Exception:  # from the compiler, or from the model itself; then eager raises it again
                    if not self._built:
                        raise
                else:
                    self._built = (*self._built, built)
                    return built(*sample.args, **sample.kwargs)
        return self._eager(*sample.args, **sample.kwargs)
