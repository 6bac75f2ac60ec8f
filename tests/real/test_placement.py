"""Checks that weights are still in the memory that a program was told: the compiled check and Python's must agree."""

import gc
import weakref

import pytest
import torch
from torch import nn

from autocompile.runtime.aot import compile_placement as placing
from autocompile.runtime.aot.placement import InC, InPython, placement_of


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    directory = tmp_path_factory.mktemp("placement")
    name = placing.compiled_placement(directory)
    assert name
    return directory / name


@pytest.fixture(params=[InC, InPython])
def watched(request, library):
    """A model and what tells whether its tensors were moved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    # The one that is moved comes last, where what was noted ends.
    tensors = [*model.parameters(), *model.buffers()][::-1]
    look = InC(tensors, library) if request.param is InC else InPython(tensors)
    return model, tensors, look.hold


def transposed(weight):
    weight.data = weight.data.t()


def elsewhere(weight):
    weight.data = weight.data.clone()


def a_part_of_it(weight):
    weight.data = weight.data[:4]


def read_as_integers(weight):
    weight.requires_grad_(requires_grad=False)
    weight.data = weight.data.view(torch.int32)


def shifted_in_its_storage(weight):
    weight.data = torch.zeros(65)[1:].view(8, 8)


def without_memory(weight):
    weight.untyped_storage().resize_(0)


def in_shared_memory(weight):
    weight.share_memory_()


def swapped(weight):
    torch.utils.swap_tensors(weight, nn.Parameter(torch.zeros(8, 8)))


def with_more_dimensions(weight):
    weight.data = weight.data.view(2, 2, 2, 8)


def sparse(weight):
    torch.utils.swap_tensors(weight, nn.Parameter(torch.eye(8).to_sparse()))


@pytest.mark.parametrize(
    "change",
    [
        transposed,
        with_more_dimensions,
        sparse,
        elsewhere,
        a_part_of_it,
        read_as_integers,
        shifted_in_its_storage,
        without_memory,
        in_shared_memory,
        swapped,
    ],
)
def test_every_move_is_seen(watched, change):
    model, _tensors, hold = watched
    assert hold()
    change(model[0].weight)
    assert not hold()


def test_what_moves_nothing_is_not_seen_as_a_move(watched):
    model, tensors, hold = watched
    before = model[0].weight.data
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(2)
    model[0].weight.requires_grad_(requires_grad=False)
    assert hold()
    with torch.inference_mode():
        assert hold()
    model[0].weight.data = before.t()
    assert not hold()
    model[0].weight.data = before
    assert hold()


def test_what_is_conjugated_where_it_lies_is_seen(library):
    tensor = torch.ones(3, dtype=torch.complex64)
    hold = placement_of([tensor], library)
    assert hold()
    tensor.data = tensor.data.conj()
    assert not hold()


def test_it_keeps_what_it_looks_at(library):
    tensors = [torch.ones(4)]
    alive = weakref.ref(tensors[0])
    hold = placement_of(tensors, library)
    tensors.clear()
    gc.collect()
    assert alive() is not None
    assert hold()


def test_there_need_be_no_tensors_and_no_library(library, tmp_path):
    assert placement_of([], library)()
    tensors = [torch.ones(2), torch.ones(())]
    nonsense = tmp_path / "placement.so"
    nonsense.write_bytes(b"not a library")
    for other in (None, tmp_path / "missing.so", nonsense):
        hold = placement_of(tensors, other)
        assert isinstance(hold.__self__, InPython)
        assert hold()
    assert placement_of([*tensors, *tensors], library)()


def test_what_does_not_compile_leaves_it_to_python(tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "SOURCE", tmp_path / "missing.c")
    assert placing.compiled_placement(tmp_path) == ""
    assert not list(tmp_path.iterdir())
