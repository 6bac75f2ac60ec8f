"""Texts of plain values, by which a model's identity knows them."""

import subprocess
import sys

import numpy as np
import pytest
from torch.nn.attention import SDPBackend

from autocompile.workload.identity.plain import text_of


class Unprintable(int):
    def __repr__(self):
        raise RuntimeError("no text")


def test_equal_arrays_have_equal_texts():
    assert text_of(np.arange(4)) == text_of(np.arange(4))
    assert text_of(np.arange(4)) != text_of(np.arange(4) + 1)


def test_the_mask_of_an_array_counts():
    assert text_of(np.ma.array([1, 2], mask=[0, 1])) != text_of(np.ma.array([1, 2], mask=[0, 0]))


def test_arrays_of_objects_are_known_by_their_simple_elements():
    class Thing:
        pass

    assert text_of(np.array([Thing(), 1], dtype=object)) == text_of(np.array([Thing(), 1], dtype=object))
    assert text_of(np.array([Thing(), 1], dtype=object)) != text_of(np.array([Thing(), 2], dtype=object))


@pytest.mark.parametrize("value", [np.ma.masked, Unprintable(3)], ids=["masked", "raises"])
def test_a_value_that_does_not_print_has_a_text(value):
    assert text_of(value)
    assert text_of({"held": value})


def test_an_implementation_of_attention_is_plain():
    tell = (
        "from torch.nn.attention import SDPBackend as B; from autocompile.workload.identity.plain import text_of as t"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{tell}; print(t([B.MATH]))"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == text_of([SDPBackend.MATH])
    assert text_of([SDPBackend.MATH]) != text_of([SDPBackend.FLASH_ATTENTION])
