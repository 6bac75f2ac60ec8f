"""The updates of optimizers, timed while anybody calls them."""

import pytest
import torch

from autocompile.workload.watching import updates


@pytest.mark.parametrize("by_name", [False, True])
def test_an_update_is_timed_without_its_closure(monkeypatch, by_name):
    clock = [0.0]
    monkeypatch.setattr(updates.time, "perf_counter", lambda: clock[0])
    parameter, told = torch.nn.Parameter(torch.ones(1)), []

    def closure():
        clock[0] += 8.0
        parameter.grad = torch.ones(1)
        return 5.0

    class Slow(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            loss = closure and closure()
            parameter.sub_(parameter.grad, alpha=0.5)
            clock[0] += 2.0
            return loss

    class Slower(Slow):
        def step(self, closure=None):
            return super().step(closure)

    Slow([parameter], {})  # torch then looks at the steps of this class, too
    optimizer = Slower([parameter], {})
    with updates.timed_updates(lambda one, seconds: told.append((one, seconds))):
        loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
        optimizer.step()
    optimizer.step()
    assert (loss, parameter.item()) == (5.0, -0.5)
    assert {one for one, _seconds in told} == {optimizer}
    assert {seconds for _one, seconds in told} == {2.0}
