"""Nested arguments and outputs, and calls with arrays, without torch."""

import subprocess
import sys

import numpy as np
import pytest

from autocompile.core.program import Axis, ConstantGuard, Program, TensorGuard
from autocompile.runtime.array_guards import ArrayGuard
from autocompile.runtime.structure import missing_class, structure_of

LEAF = '{"type": null, "context": null, "children_spec": []}'


def node(kind, context, *children):
    return f'{{"type": "{kind}", "context": {context}, "children_spec": [{", ".join(children)}]}}'


def text(top):
    return f"[1, {top}]"


PAIR = node("builtins.tuple", '"null"', LEAF, LEAF)
NAMED = node("builtins.dict", r'"[\"b\", \"a\"]"', LEAF, PAIR)
RECORD = node("nowhere.Output", r'"[\"logits\", \"hidden\"]"', LEAF, NAMED)


def test_values_are_put_together_and_taken_apart_again():
    structure = structure_of(text(NAMED))
    value = structure.filled(iter([1, 2, 3]))
    assert value == {"b": 1, "a": (2, 3)}
    assert structure.leaves_of(value) == [1, 2, 3]
    assert structure.leaves_of({"a": (2, 3)}) is None
    assert structure.leaves_of({"b": 1, "a": (2, 3, 4)}) is None
    assert structure_of(text(LEAF)).filled(iter([7])) == 7


def test_a_record_whose_class_is_missing_becomes_a_dict_with_its_names():
    assert missing_class(text(RECORD)) == "nowhere.Output"
    assert structure_of(text(RECORD)).filled(iter([1, 2, 3, 4])) == {"logits": 1, "hidden": {"b": 2, "a": (3, 4)}}
    assert missing_class(text(NAMED)) == ""


def test_what_classes_write_of_themselves_is_read_or_left():
    fields = node("nowhere.Data", r'"[[\"x\", \"y\"], []]"', LEAF, LEAF)
    assert structure_of(text(fields)).filled(iter([1, 2])) == {"x": 1, "y": 2}
    default = node("collections.defaultdict", r'{"default_factory": null, "dict_context": ["a"]}', LEAF)
    assert structure_of(text(default)).filled(iter([1])) == {"a": 1}
    named = node("Point", '"Point(x, y)"', LEAF, LEAF)
    assert structure_of(text(named)).filled(iter([1, 2])) == (1, 2)
    assert missing_class(text(named)) == "Point"


@pytest.mark.parametrize("broken", ["[1]", '[1, {"type": null}]', "nothing"])
def test_what_is_no_structure_is_said(broken):
    with pytest.raises(ValueError, match=r"nested structure|unpack|Expecting|malformed"):
        structure_of(broken)


def program(**fields):
    positional = node("builtins.tuple", '"null"', LEAF, LEAF)
    arguments = node("builtins.tuple", '"null"', positional, node("builtins.dict", r'"[\"scale\"]"', LEAF))
    given = {
        "positional": 2,
        "keywords": ("scale",),
        "input_spec": text(arguments),
        "guards": (
            TensorGuard("[0][0]", "float32", ("batch", 3), "contiguous"),
            TensorGuard("[0][1]", "int64", ("batch",), "contiguous"),
            ConstantGuard("[1]['scale']", "2.0"),
        ),
        "axes": (Axis("batch", 2, 8),),
        "output_spec": text(LEAF),
        "outputs": (None,),
        "files": (),
    }
    return Program(**{**given, **fields})


def called(*args, **kwargs):
    return ArrayGuard(program())(args, kwargs)


IMAGES, LABELS = np.zeros((4, 3), np.float32), np.zeros(4, np.int64)


def test_a_call_of_its_own_gives_the_arrays_in_order():
    first, second = called(IMAGES[:, ::-1], LABELS, scale=2.0)
    assert first.flags.c_contiguous
    assert (first.shape, second.dtype) == ((4, 3), np.int64)


@pytest.mark.parametrize(
    ("args", "scale", "said"),
    [
        ((IMAGES,), 2.0, "the program takes 2 positional arguments, scale="),
        ((IMAGES, LABELS), 3.0, "[1]['scale'] is 3.0, not 2.0"),
        ((IMAGES, LABELS), 2, "[1]['scale'] is 2, not 2.0"),
        ((IMAGES.astype(np.float64), LABELS), 2.0, "[0][0] is float64, not float32"),
        ((IMAGES.tolist(), LABELS), 2.0, "[0][0] is a list, not an array"),
        ((IMAGES.astype(">f4"), LABELS), 2.0, "[0][0] has another byte order than this machine"),
        ((IMAGES[0], LABELS), 2.0, "[0][0] has 1 axes, not 2"),
        ((IMAGES[:, :2], LABELS), 2.0, "[0][0] has size 2 in axis 1, not 3"),
        ((IMAGES[:1], LABELS[:1]), 2.0, "[0][0] has size 1 in axis 0, which is not in 2..8"),
        ((IMAGES, LABELS[:3]), 2.0, "[0][1] has size 3 in axis 0, and another argument has 4"),
    ],
)
def test_any_other_call_is_refused_in_words(args, scale, said):
    assert called(*args, scale=scale) == said


def of_arrays_only():
    positional = node("builtins.tuple", '"null"', LEAF, LEAF)
    arguments = node("builtins.tuple", '"null"', positional, node("builtins.dict", '"[]"'))
    return program(keywords=(), input_spec=text(arguments), guards=program().guards[:2])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((IMAGES,), "the program takes 2 positional arguments"),
        ((IMAGES.astype(np.float64), LABELS), "[0][0] is float64, not float32"),
        ((IMAGES.astype(">f4"), LABELS), "[0][0] has another byte order than this machine"),
        ((IMAGES[:1], LABELS[:1]), "[0][0] has size 1 in axis 0, which is not in 2..8"),
        (((IMAGES, IMAGES), LABELS), "[0][0] is a tuple, not an array"),
    ],
)
def test_a_call_like_the_previous_one_is_recognized_and_another_is_examined(args, said):
    guard = ArrayGuard(of_arrays_only())
    for images, labels in [(IMAGES, LABELS), (IMAGES + 1, LABELS + 1), (IMAGES[:2], LABELS[:2]), (IMAGES, LABELS)]:
        first, second = guard((images, labels), {})
        assert first is images
        assert second is labels
    assert guard(args, {}) == said
    turned, _labels = guard((IMAGES[:, ::-1], LABELS), {})
    assert turned.flags.c_contiguous


def test_serving_arrays_imports_no_torch():
    code = "import autocompile.artifact.arrays, autocompile.artifact.entry, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
