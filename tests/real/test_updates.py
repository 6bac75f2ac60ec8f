"""The optimizer updates of a step are timed while other code also calls them."""

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


def test_of_an_optimizer_that_calls_for_the_loss_each_call_is_told_of():
    parameter, told, begun = torch.nn.Parameter(torch.ones(2)), [], []
    optimizer = torch.optim.LBFGS([parameter], lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = (parameter - 3).square().sum()
        loss.backward()
        return loss

    with updates.timed_updates(lambda one, seconds: told.append((one, seconds, parameter.grad.norm())), begun.append):
        optimizer.step(closure)
        assert len(begun) == 1
        optimizer.step(closure)
    calls = optimizer.state[parameter]["func_evals"]
    assert calls > 2
    assert [one[:2] for one in told] == [(optimizer, 0.0)] * calls
    assert len({float(gradient) for _one, _seconds, gradient in told}) > 2, "told of with the gradients of the call"
