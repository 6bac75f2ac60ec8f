"""Intercept calls of transformers' `generate`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any

from torch import nn

from autocompile.workload.generating.imports import when_imported

# Imported by code that generates, and not before.
GENERATES = "transformers.generation.utils"
# The oldest major version whose caches have the known kinds of layers.
_OLDEST = 5

# Makes a call of `generate` in place of the program. It takes the model, its arguments by name, and the original
# `generate`.
Pass = Callable[[nn.Module, dict[str, Any], Callable[..., Any]], Any]


def is_supported() -> bool:
    """Return whether the imported version of transformers has decode steps that can be tuned."""
    version = str(getattr(sys.modules.get("transformers"), "__version__", "0"))
    return int(version.split(".", maxsplit=1)[0]) >= _OLDEST


@contextmanager
def generate_replaced(passed: Pass) -> Iterator[None]:
    """Pass each call of transformers' `generate` to `passed`, also if transformers is imported only within the context.

    Versions before 5 are left unchanged.
    """
    undo: list[Callable[[], None]] = []

    def replace(module: ModuleType) -> None:
        if not is_supported():
            return
        mixin = module.GenerationMixin
        before = mixin.generate
        signature = inspect.signature(before)

        @wraps(before)
        def generate(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            named = dict(signature.bind(self, *args, **kwargs).arguments)
            del named["self"]
            named.update(named.pop("kwargs", {}))
            return passed(self, named, before)

        mixin.generate = generate
        undo.append(lambda: setattr(mixin, "generate", before))

    with when_imported(GENERATES, replace):
        try:
            yield
        finally:
            for put_back in undo:
                put_back()
