"""Differences between two models, described in words."""

import pytest

from autocompile.core.identity import Identity, differences, summary

THEN = Identity(
    modules={"": "Net", "layer": "torch.nn.modules.linear.Linear"},
    tensors={"layer.weight": "64x64 float32", "scale": "scalar float32"},
    code={"Net.forward": "1111", "helper": "2222"},
    values={"SCALE": "2.0"},
    attributes={"calls": "0", "training": "True", "layer.training": "True"},
    python="3.11",
)


def now(part, **facts):
    """As it was, but for some facts, None for one that is gone."""
    held = {**getattr(THEN, part), **{name.replace("_", "."): fact for name, fact in facts.items()}}
    return Identity(
        **{
            **{name: getattr(THEN, name) for name in THEN.__struct_fields__},
            part: {name: fact for name, fact in held.items() if fact is not None},
        }
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (now("tensors", layer_weight="64x32 float32"), "layer.weight is 64x32, was 64x64"),
        (now("tensors", layer_weight="64x64 float64"), "layer.weight is float64, was float32"),
        (now("tensors", layer_bias="64 float32"), "layer.bias is new"),
        (now("tensors", layer_weight=None), "there is no layer.weight"),
        (now("modules", layer="torch.nn.modules.conv.Conv2d"), "layer is of class Conv2d, was Linear"),
        (
            now("modules", layer="torch.ao.nn.quantized.modules.linear.Linear"),
            "layer is of class torch.ao.nn.quantized.modules.linear.Linear, was torch.nn.modules.linear.Linear",
        ),
        (now("modules", head="Head"), "head is new, of class Head"),
        (now("modules", layer=None), "there is no layer, which was of class Linear"),
        (now("code", helper="3333"), "the code of helper has changed"),
        (now("values", SCALE="3.0"), "`SCALE` is 3.0, was 2.0"),
        (now("attributes", calls="17"), "attribute `calls` is 17, was 0"),
        (now("attributes", training="False"), "`training` is False, was True"),
        (
            now("attributes", training="False", layer_training="False"),
            "`training` is False, was True (and 1 more differ",
        ),
        (now("attributes", calls=None), "attribute `calls` is not there, was 0"),
    ],
)
def test_a_difference_is_named(other, said):
    assert summary(differences(THEN, other)).startswith(said)


def test_equal_identities_differ_in_nothing():
    assert differences(THEN, THEN) == []
    assert summary([]) == ""


def test_code_that_was_not_recorded_is_not_compared():
    assert differences(THEN, now("code", another="4444")) == []


def test_code_of_another_python_cannot_be_compared():
    found = differences(THEN, Identity(**{**{n: getattr(THEN, n) for n in THEN.__struct_fields__}, "python": "3.12"}))
    assert summary(found).startswith("Python is 3.12, was 3.11, so the model's code cannot be compared")
