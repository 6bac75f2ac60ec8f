"""Call programs with CUDA graphs safely: from one thread only, and with outputs that stay valid.

Torch keeps a process's CUDA graphs per thread (2.13, `cudagraph_trees`). Before 2.13, a second thread fails an
assertion. From 2.13 on, it replays what the first thread has recorded, and nothing prevents two replays from
overwriting each other's inputs and outputs. Therefore the graphs belong to the thread of the first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.runtime.base import OtherThread


class Owned:
    """A call that returns copies of the outputs, because CUDA graphs write each output into the same memory again.

    Raises OtherThread for a call from a thread other than that of the first call.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._owner: threading.Thread | None = None
        self._claiming = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The object is compared, because the numbers of ended threads are reused.
        if self._owner is not threading.current_thread():
            self._claim()
        output = self._call(*args, **kwargs)
        return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, output)

    def _claim(self) -> None:
        """Make this thread the owner if there is none."""
        with self._claiming:
            if self._owner is None:
                self._owner = threading.current_thread()
                return
        raise OtherThread(
            f"its CUDA graphs belong to the thread of the first call ({self._owner.name}), and this call came from "
            f"another ({threading.current_thread().name}); make all calls from one thread"
        )
