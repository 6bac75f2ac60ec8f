"""Do independent pieces of work in threads. Does not import torch."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

# Work that mostly reads memory is not faster with more.
_MOST_THREADS = 8


def do_all(tasks: Sequence[Callable[[], object]]) -> None:
    """Call all tasks, beginning them in the given order. The calling thread works, too.

    Raises what a task raises; tasks that have not begun by then are not called.
    """
    left = deque(tasks)

    def work() -> None:
        try:
            while left:
                try:
                    task = left.popleft()
                except IndexError:  # another thread took the last one in the meantime
                    return
                task()
        except BaseException:
            left.clear()
            raise

    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(tasks))
    if threads < 2:
        work()
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(work) for _ in range(threads - 1)]
        work()
        for other in others:
            other.result()
