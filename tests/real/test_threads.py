"""Programs with CUDA graphs serve only the thread of the first call; a plain function stands in for the graphs."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from autocompile.artifact.serving import Compiling, Ready, Tally
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime.base import OtherThread
from autocompile.runtime.built import Built
from autocompile.runtime.inductor.kind import KIND
from autocompile.runtime.inductor.owned import Owned
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.model_watch import Watch

GRAPHS = compiled(options={"triton.cudagraphs": True})


class Replayed:
    """Writes each output where the last one was, as a CUDA graph does."""

    def __init__(self):
        self.output = torch.zeros(2)

    def __call__(self, x):
        return self.output.copy_(x + 1)


def in_another_thread(call, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).result()


def serving(call):
    """As production serves a plan with CUDA graphs."""
    model, tally = nn.Identity(), Tally()
    eager = Ready(Built(lambda x: x + 1, Plan(), "cpu", model), tally)
    own = Serving("inductor", "compile")
    return Compiling(Built(call, Plan(), "cpu", model), eager, Watch(model), tally, own, "inductor"), tally


def test_outputs_are_the_callers_own():
    call = Owned(Replayed())
    first = call(torch.zeros(2))
    call(torch.ones(2))
    assert first.tolist() == [1, 1]


def test_the_thread_of_the_first_call_is_the_one_that_is_served():
    call = Owned(Replayed())
    in_another_thread(call, torch.zeros(2))
    with pytest.raises(OtherThread, match=r"the thread of the first call .* came from another \(MainThread"):
        call(torch.zeros(2))


def test_threads_that_come_after_it_has_ended_are_others():
    call = Owned(Replayed())
    in_another_thread(call, torch.zeros(2))
    for _ in range(3):  # the system gives its number out again
        with pytest.raises(OtherThread):
            in_another_thread(call, torch.zeros(2))


def test_calls_of_other_threads_are_served_eager_and_told():
    server, tally = serving(Owned(Replayed()))
    for _ in range(2):
        assert server((torch.zeros(2),), {}).tolist() == [1, 1]
        assert in_another_thread(server, (torch.ones(2),), {}).tolist() == [2, 2]
    assert tally.calls == {"inductor": 2, "eager": 2}
    ((reason, count),) = tally.refusals
    assert count == 2
    assert "make all calls from one thread" in reason
    assert server.serving == Serving("inductor", "compile"), "it goes on to serve the thread that it belongs to"


def test_threads_that_come_at_once_are_served_right():
    barrier = threading.Barrier(4)
    server, tally = serving(Owned(Replayed()))

    def call(number):
        barrier.wait()
        return server((torch.full((2,), float(number)),), {}).tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [[n + 1.0] * 2 for n in range(4)]
    assert tally.calls == {"inductor": 1, "eager": 3}


def test_only_plans_with_cuda_graphs_serve_one_thread():
    assert "thread that makes the first call" in KIND.serves_one_thread(GRAPHS)
    assert KIND.serves_one_thread(compiled()) == ""
