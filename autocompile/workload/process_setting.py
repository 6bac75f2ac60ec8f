"""Give a setting of the process another value while it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class ProcessSetting(AbstractContextManager[None]):
    """A context in which a setting of the process, not only of the thread, has another value.

    `change` changes the setting and returns its value before, which `restore` sets again when the last user has left
    the context. This is a class because a generator would be slower, and it is part of every call.
    """

    def __init__(self, change: Callable[[], Any], restore: Callable[[Any], None]) -> None:
        self._change, self._restore = change, restore
        self._lock = threading.Lock()
        self._count, self._before = 0, None

    @property
    def applies(self) -> bool:
        """Return whether somebody is in the context."""
        return self._count > 0

    def __enter__(self) -> None:
        with self._lock:
            if self._count == 0:
                self._before = self._change()
            self._count += 1

    def __exit__(self, *_fault: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._restore(self._before)


@contextmanager
def both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    """Return one context for two."""
    with first, second:
        yield
