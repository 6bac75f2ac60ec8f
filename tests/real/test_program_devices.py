"""One device for each tensor of a program; torch's meta device, which has no memory, stands in for a GPU."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch._inductor.graph import GraphLowering

from autocompile.core.plan import Plan
from autocompile.runtime.aot import binding, constants, device_copies
from autocompile.runtime.aot.compile import _weights
from autocompile.runtime.aot.package import Package, Weight
from autocompile.runtime.base import NotPackable, WeightsDiffer
from autocompile.runtime.devices import check_one_gpu, computing_device, device_of_model, is_misaligned
from autocompile.runtime.export import described, exported
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.workload.samples import Sample
from autocompile.workload.spool import _devices_of

AWAY = torch.device("meta")


class Gathers(nn.Module):
    """Its weights are away, its positions on the CPU."""

    def __init__(self):
        super().__init__()
        self.register_buffer("positions", torch.arange(4))
        self.weight = nn.Parameter(torch.ones(3, device=AWAY))

    def forward(self, x, lengths):
        return x * self.weight, lengths + self.positions


class GPUTensor:
    """What is asked of a tensor that lies on some GPU, of which there is none here."""

    def __init__(self, index, address=0):
        self.device, self._address = torch.device("cuda", index), address

    def data_ptr(self):
        return self._address


def guarded(*arguments):
    sample = Sample(arguments, {})
    model = Gathers().eval()
    program = described(exported(model, Plan(), sample), sample, (), (), {})
    return program, Guard(program, model, computing_device(model, sample))


def test_each_tensor_of_a_call_is_expected_where_it_lay(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _type: False)  # which knows no meta device
    x, lengths = torch.ones(2, 3, device=AWAY), torch.arange(4)
    program, guard = guarded(x, lengths)
    assert [one.device_type for one in program.guards] == ["meta", "cpu"]
    assert guard((x, lengths), {}) == [x, lengths]
    moved = guard((x, lengths.to(AWAY)), {})
    assert isinstance(moved, Refusal)
    assert "is on meta, not on cpu" in moved.message
    assert "is on cpu, not on meta" in guard((torch.ones(2, 3), lengths), {}).message


def test_what_computes_is_not_the_first_tensor_on_the_cpu():
    model, sample = Gathers(), Sample((torch.arange(4), torch.ones(3, device=AWAY)), {})
    assert computing_device(model, sample) == AWAY
    assert computing_device(torch.add, sample) == AWAY
    assert computing_device(torch.add, Sample((torch.ones(2),), {})) == torch.device("cpu")
    assert device_of_model(nn.Sequential(nn.BatchNorm1d(2), model), "cpu") == AWAY
    assert device_of_model(nn.ReLU(), "cpu") == torch.device("cpu")


def test_a_workload_is_on_the_device_that_computes():
    sample = Sample((torch.arange(4), torch.ones(3, device=AWAY)), {})
    cpu = torch.device("cpu")
    assert _devices_of(Gathers(), (sample,)) == _devices_of(torch.add, (sample,)) == [AWAY, cpu]
    assert _devices_of(torch.add, (Sample((torch.ones(2), 3), {}),)) == [cpu]
    assert _devices_of(torch.add, (Sample((3,), {}),)) == [cpu]


@pytest.mark.parametrize("indices", [(0, 1), (2, 0)])
def test_a_program_on_two_gpus_is_refused(monkeypatch, indices):
    tensors = [("", GPUTensor(index)) for index in indices]
    monkeypatch.setattr("autocompile.runtime.devices.registered_tensors", lambda _model: tensors)
    names = " and ".join(f"cuda:{index}" for index in sorted(indices))
    with pytest.raises(NotPackable, match=names):
        check_one_gpu(None, Sample((torch.ones(2),), {}))
    del tensors[0]
    check_one_gpu(None, Sample((torch.ones(2),), {}))


class Lowering:
    """As much of torch's lowering as names its constants."""

    qualify_name = staticmethod(lambda name: name)
    allocate_non_dup_const_name = GraphLowering.allocate_non_dup_const_name

    def __init__(self, **tensors):
        self.constants, self.constant_reprs, self.allocated_constant_name = dict(tensors), {}, {}
        self.named_buffers, self.named_parameters = {}, {}

    def copy_of(self, name):
        """The name that a package has for the copy of a constant."""
        return self.allocated_constant_name[GraphLowering.constant_name(self, name, AWAY)]


def test_a_constant_that_torch_copies_to_a_device_is_found_by_its_name():
    lowering = Lowering(lifted_tensor_0=torch.arange(3.0), model_pos_table=torch.ones(2))
    copies = [lowering.copy_of(name) for name in ("lifted_tensor_0", "model_pos_table")]
    assert copies == ["lifted_tensor_0_meta0", "model_pos_table_meta0"]
    own = {"lifted_tensor_0": torch.arange(3.0)}
    held = device_copies.held_constants([*copies, "model.weight", "lifted_tensor_0"], own)
    assert {name: tensor.device.type for name, tensor in held.items()} == {
        "lifted_tensor_0_meta0": "meta",
        "lifted_tensor_0": "cpu",
    }
    assert device_copies.copied_from(copies[1], ["model.other", "model.pos.table"]) == ("model.pos.table", "meta:0")


def test_a_copy_of_the_models_own_tensor_is_refused_as_it_would_not_follow_changes():
    with pytest.raises(
        NotPackable, match=r"positions is used on cuda:0 .* would not follow changes: move it to cuda:0"
    ):
        list(_weights(["model_positions_cuda0"], Gathers()))
    with pytest.raises(NotPackable, match="was not found in the model"):
        list(_weights(["model_unknown_cuda0"], Gathers()))


def test_constants_with_gaps_keep_their_strides_on_another_device():
    gaps = torch.arange(24.0).view(4, 6)[:, ::2]
    moved = constants._moved(gaps, AWAY)
    assert (moved.device, moved.stride()) == (AWAY, gaps.stride())
    assert gaps.to(AWAY).stride() != gaps.stride(), "which torch itself does not promise"
    assert torch.equal(constants._moved(gaps, torch.device("cpu")), gaps)


class Running:
    """What gives a runner."""

    def bound(self, _constants, _user):
        return None


def bound(model, *weights):
    package = Package("code", ("code",), weights=weights)
    return binding.Binding(package, None, Running(), model, Watch(model), {}, {})


def test_a_weight_has_to_lie_where_it_lay_when_it_was_packed():
    model = Gathers()
    (positions,) = _weights(["model.positions"], model)
    assert positions == Weight("model.positions", "positions", "int64", (4,), (1,))
    bound(model, positions)
    with pytest.raises(WeightsDiffer, match="positions is on cpu, but was on cuda when packed"):
        bound(model, replace(positions, device_type="cuda"))


def test_a_weight_that_is_not_aligned_is_refused_on_a_gpu(monkeypatch):
    assert [is_misaligned(GPUTensor(0, address)) for address in (0, 64, 4, 72)] == [False, False, True, True]
    assert not is_misaligned(torch.ones(9)[1:]), "a CPU reads it wherever it starts"
    model = nn.Linear(2, 2)
    weights = list(_weights(["model.weight", "model.bias"], model))
    bound(model, *weights)
    monkeypatch.setattr(binding, "is_misaligned", lambda tensor: tensor is model.bias)
    with pytest.raises(WeightsDiffer, match="bias does not start at a multiple of 16 bytes"):
        bound(model, *weights)
