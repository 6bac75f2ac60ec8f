"""The fast digest of weights: it depends on every bit and on the order, and is the sum that its method defines."""

import hashlib

import numpy as np
import pytest

from autocompile.runtime import digest
from autocompile.runtime.digest import digest_of

ROW = 1 << 16


def view(data):
    return memoryview(bytes(data))


@pytest.mark.parametrize("length", [0, 1, 100, ROW - 1])
def test_few_bytes_are_read_by_sha256(length):
    data = np.random.default_rng(0).bytes(length)
    assert digest_of(view(data)) == hashlib.sha256(data).digest()


def test_a_row_is_the_sum_of_its_words_times_their_factors_modulo_2_to_the_64():
    data = np.random.default_rng(0).bytes(ROW)
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, ROW, 4)]
    factors = [int(one) for one in digest._factors()]
    total = sum(word * factor for word, factor in zip(words, factors, strict=True)) % 2**64
    assert digest_of(view(data)) == hashlib.sha256(total.to_bytes(8, "little")).digest()


@pytest.mark.parametrize("place", [0, 3, ROW - 1, ROW, 2 * ROW - 1, 2 * ROW, 2 * ROW + 99])
@pytest.mark.parametrize("bit", [0, 7])
def test_every_bit_counts(place, bit):
    data = bytearray(np.random.default_rng(0).bytes(2 * ROW + 100))
    before = digest_of(view(data))
    data[place] ^= 1 << bit
    assert digest_of(view(data)) != before


@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
def test_other_signs_and_another_order_are_detected(dtype):
    weights = np.random.default_rng(0).standard_normal((256, 512)).astype(dtype)
    others = [
        -weights,
        weights * np.where(np.arange(512) < 2, -1, 1).astype(dtype),
        weights * np.where(np.arange(512) % 2, -1, 1).astype(dtype),
        weights[::-1],
        weights[:, ::-1],
        np.roll(weights, 128, axis=0),
        weights.T,
    ]
    found = {digest_of(view(one.tobytes())) for one in (weights, *others)}
    assert len(found) == 1 + len(others)
