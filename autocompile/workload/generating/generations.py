"""Watch the models that generate text with transformers. Transformers need not be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import local
from typing import TYPE_CHECKING, Any

from torch import nn

from autocompile.workload.generating.replacing import generate_replaced

if TYPE_CHECKING:
    from autocompile.workload.generating.seen import Generated, Text


class _Current(local):
    text: Text | None = None


class Generations:
    """What was seen of each model that generated. Each call of `generate` is made within a context of `around`."""

    def __init__(self, around: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._around = around
        self._seen: dict[int, Generated] = {}
        self._current = _Current()

    @property
    def seen(self) -> list[Generated]:
        """What was seen of all models, in the order of their first call."""
        return list(self._seen.values())

    def current(self, module: nn.Module) -> Text | None:
        """Return the text that this module is generating in this thread, or None."""
        text = self._current.text
        return text if text is not None and text.model is module else None

    def passed(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]) -> Any:
        """Make a call of a module, and record it if it belongs to a text that is being generated."""
        text = self.current(module)
        return made(module, *args, **kwargs) if text is None else text.called(args, kwargs, made)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Watch every call of `generate` within the context."""
        with generate_replaced(self._generate):
            yield

    def _generate(self, model: nn.Module, arguments: dict[str, Any], made: Callable[..., Any]) -> Any:
        from autocompile.workload.generating.seen import Generated, Text  # noqa: PLC0415  imports transformers

        text = Text(self._seen.setdefault(id(model), Generated(model)), arguments)
        before, self._current.text = self._current.text, text
        try:
            with self._around():
                output = made(model, **arguments)
            text.ended()
            return output
        finally:
            self._current.text = before
