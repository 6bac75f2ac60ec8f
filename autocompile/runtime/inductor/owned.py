"""What is compiled with CUDA graphs, called safely: by one thread, and with outputs that stay.

Torch keeps the graphs of a process by thread (2.13, `cudagraph_trees`): before 2.13 a second thread meets an assertion,
and from then on it replays what the first has recorded, with nothing that keeps two replays from writing over each
other's inputs and outputs. So the thread of the first call is the one that they belong to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.runtime.base import OtherThread


class Owned:
    """A call whose outputs are the caller's own: CUDA graphs write each output where the last one was.

    Raises OtherThread where a call comes from another thread than the first one did.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._owner: threading.Thread | None = None
        self._claiming = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The object, as numbers of threads that have ended are given out again.
        if self._owner is not threading.current_thread():
            self._claim()
        output = self._call(*args, **kwargs)
        return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, output)

    def _claim(self) -> None:
        """Take it for this thread, if nobody has it."""
        with self._claiming:
            if self._owner is None:
                self._owner = threading.current_thread()
                return
        raise OtherThread(
            f"its CUDA graphs belong to the thread of the first call ({self._owner.name}), and this call came from "
            f"another ({threading.current_thread().name}); make all calls from one thread"
        )
