"""The optimizer of a copy of the model: same class, groups and state; the user's optimizer is only read."""

import pytest
import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.training.recipe import recipe_for, recipe_of

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def named(model):
    return dict(model.named_parameters())


def train(model, optimizer, steps=3):
    for _ in range(steps):
        model.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


def in_groups(kind, **options):
    """Two groups, one of them with settings of its own."""

    def make(model):
        first, second = model[0].parameters(), model[2].parameters()
        return kind([{"params": first}, {"params": second, "lr": 0.05}], **options)

    return make


KINDS = {
    "SGD": in_groups(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": in_groups(torch.optim.Adam, lr=0.01, amsgrad=True),
    "AdamW": in_groups(torch.optim.AdamW, lr=torch.tensor(0.01), foreach=False),
    "AdamW fused": in_groups(torch.optim.AdamW, lr=0.01, fused=True),
    "Adagrad": in_groups(torch.optim.Adagrad, lr=0.01),
    "RMSprop": in_groups(torch.optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
    "NAdam": in_groups(torch.optim.NAdam, lr=0.01),
    "Adafactor": in_groups(torch.optim.Adafactor, lr=0.01),
    "ASGD": in_groups(torch.optim.ASGD, lr=0.01),
    "Rprop": in_groups(torch.optim.Rprop, lr=0.01),
    "by name": lambda model: torch.optim.AdamW(model.named_parameters(), lr=0.01),
}


def bits(model, optimizer):
    """All that either holds."""
    held = [list(map(repr, model.state_dict().items())), repr(optimizer.state_dict()), repr(optimizer.defaults)]
    gradients = [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
    return held, gradients, [id(p) for group in optimizer.param_groups for p in group["params"]]


@pytest.mark.parametrize("warm", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_goes_on_as_the_original_does(kind, warm):
    model = network()
    optimizer = KINDS[kind](model)
    train(model, optimizer, warm)
    before = bits(model, optimizer)
    recipe = recipe_for(optimizer, named(model))
    copied = network()
    copied.load_state_dict(model.state_dict())
    own = recipe.build(named(copied))
    assert type(own) is type(optimizer)
    assert {group["lr"] if isinstance(group["lr"], float) else group["lr"].item() for group in own.param_groups} == {
        group["lr"] if isinstance(group["lr"], float) else group["lr"].item() for group in optimizer.param_groups
    }
    train(copied, own)
    assert bits(model, optimizer) == before, "the original is as it was"
    train(model, optimizer)
    assert bits(copied, own)[:2] == bits(model, optimizer)[:2]


@pytest.mark.parametrize("kind", KINDS)
def test_in_float64_it_computes_the_same_more_exactly(kind):
    model = network()
    optimizer = KINDS[kind](model)
    train(model, optimizer, 2)
    wide = network()
    wide.load_state_dict(model.state_dict())
    wide.double()
    own = recipe_for(optimizer, named(model)).in_float64().build(named(wide))
    global_x = X.double()
    for _ in range(2):
        own.zero_grad()
        wide(global_x).square().mean().backward()
        own.step()
    train(model, optimizer, 2)
    for name, parameter in model.named_parameters():
        assert named(wide)[name].dtype == torch.float64
        assert torch.allclose(named(wide)[name].float(), parameter, atol=2e-6), name


def test_a_scheduler_of_the_users_does_not_reach_the_copy():
    model = network()
    optimizer = KINDS["SGD"](model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train(model, optimizer, 1)
    scheduler.step()
    before = bits(model, optimizer)
    copied = network()
    own = recipe_for(optimizer, named(model)).build(named(copied))
    train(copied, own)
    assert [group["lr"] for group in own.param_groups] == [0.05, 0.025]
    assert bits(model, optimizer) == before


def test_a_function_makes_it_and_its_state_goes_along():
    calls = []

    def make(parameters):
        calls.append(len(parameters))
        return torch.optim.AdamW(parameters[:2], lr=0.01)

    model = network()
    optimizer = recipe_for(make, named(model)).build(named(model))
    train(model, optimizer)
    assert calls == [4, 4]
    copied = network()
    copied.load_state_dict(model.state_dict())
    own = recipe_of(optimizer, named(model), make).build(named(copied))
    untrained = copied[2].weight.clone()
    train(copied, own)
    train(model, optimizer)
    assert bits(copied, own)[:2] == bits(model, optimizer)[:2]
    assert torch.equal(copied[2].weight, untrained), "what the optimizer does not hold is not trained"


@pytest.mark.parametrize("variant", ["foreach", "fused"])
@pytest.mark.parametrize("given", ["instance", "function"])
def test_variants_compute_the_same(variant, given):
    model, other = network(), network()
    optimizer = KINDS["Adam"](model)
    if given == "function":
        recipe = recipe_for(lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True), named(model))
        optimizer = recipe.build(named(model))
    own = getattr(recipe_for(optimizer, named(model)), variant)().build(named(other))
    assert all(group[variant] for group in own.param_groups)
    train(model, optimizer)
    train(other, own)
    for name, parameter in model.named_parameters():
        assert torch.allclose(named(other)[name], parameter, atol=1e-6)


def told(fault):
    with pytest.raises(InvalidWorkload) as raised:
        fault()
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_what_a_class_or_a_device_lacks_is_told():
    model = network()
    recipe = recipe_for(torch.optim.RMSprop(model.parameters()), named(model))
    assert told(recipe.fused) == "training.optimizer: RMSprop has no fused implementation; leave it as given"
    meta = network().to("meta")
    recipe = recipe_for(torch.optim.Adam(meta.parameters()), named(meta)).fused()
    assert "Adam has no fused implementation for float32 on meta" in told(lambda: recipe.build(named(meta)))
    tensor = recipe_for(torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False), named(model))
    assert "foreach" in told(lambda: tensor.foreach().build(named(network())))


class Choosy(torch.optim.SGD):
    def __init__(self, params, weights):
        super().__init__(params, lr=0.1 * len(weights))


def test_what_is_no_optimizer_of_the_model_is_told():
    model, other = network(), network()
    assert "holds none of the model's parameters" in told(
        lambda: recipe_for(torch.optim.SGD(other.parameters()), named(model))
    )
    mixed = torch.optim.SGD([*model.parameters(), other[0].bias])
    assert "holds 1 parameter that the model does not have (first: of shape (8,))" in told(
        lambda: recipe_for(mixed, named(model))
    )
    assert "returns a list" in told(lambda: recipe_for(lambda parameters: parameters, named(model)))
    ownerless = torch.optim.SGD(model.parameters())
    ownerless.state["everything"] = {"count": 1}
    assert "SGD keeps state that belongs to no parameter" in told(lambda: recipe_for(ownerless, named(model)))
    choosy = recipe_for(Choosy(model.parameters(), [1]), named(model))
    assert "give a function from parameters to an optimizer" in told(lambda: choosy.build(named(other)))
    by_function = recipe_for(lambda parameters: Choosy(parameters, [1]), named(model))
    assert by_function.build(named(other)).param_groups[0]["lr"] == pytest.approx(0.1)
    answers = iter([torch.optim.SGD(model.parameters()), torch.optim.SGD(other[0].parameters())])
    fickle = recipe_for(lambda _parameters: next(answers), named(model))
    assert "holds none of the model" in told(lambda: fickle.build(named(model)))
