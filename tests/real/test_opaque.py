"""Arguments that pytree does not know, such as a cache of keys and values: they are copied, widened and compared."""

import inspect
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader
from transformers import BatchEncoding, DynamicCache, LlamaConfig, LlamaForCausalLM

from autocompile.core.errors import InvalidWorkload
from autocompile.trial.check.reference import as_float64, vary, writes_into_inputs
from autocompile.trial.check.repeatability import repeatability
from autocompile.workload.call import Call
from autocompile.workload.capture.stream import is_stream, take
from autocompile.workload.opaque import mapped, parts
from autocompile.workload.samples import Sample, as_samples, clone, describe
from autocompile.workload.training.training import Training, steps_of


@dataclass
class Box:
    content: torch.Tensor
    again: torch.Tensor
    name: str = "box"


class Adds(nn.Module):
    """Adds to what is in the box, and leaves the sum there."""

    def forward(self, x, box):
        box.content = box.content + x
        return box.content.sum(0)


@pytest.fixture
def sample():
    kept = torch.randn(3, 2)
    return Sample((torch.randn(3, 2), Box(kept, kept)), {})


def test_a_copy_has_its_own_memory_and_shares_as_the_original_does(sample):
    box = clone(sample).args[1]
    given = sample.args[1]
    assert torch.equal(box.content, given.content)
    assert box.content.data_ptr() != given.content.data_ptr()
    assert box.content is box.again
    assert box.name == "box"


def test_its_tensors_are_widened_and_varied(sample):
    assert as_float64(sample).args[1].content.dtype == torch.float64
    varied = vary(sample, torch.Generator().manual_seed(0)).args[1]
    assert not torch.equal(varied.content, sample.args[1].content)
    assert sample.args[1].content.dtype == torch.float32


def test_calls_that_write_into_it_are_repeatable_and_leave_the_sample_alone(sample):
    before = sample.args[1].content.clone()
    found = repeatability(Call(Adds()), sample, seed=0)
    assert found.deterministic
    assert found.mutates_inputs
    assert found.opaque_input == "input[1] is an object of class Box"
    assert torch.equal(sample.args[1].content, before)


def test_what_was_written_is_observed(sample):
    leaves = Call(Adds()).observe(sample, seed=0).leaves
    written = next(value for name, value in leaves.items() if "content" in name)
    assert torch.equal(written, sample.args[0] + sample.args[1].content)
    assert writes_into_inputs(sample, leaves)


def test_its_tensors_are_part_of_the_description(sample):
    tensors, constants = describe(sample)
    assert [spec.shape for spec in tensors] == [(3, 2)] * 3
    assert "0x" not in str(constants)


def test_a_step_with_a_cache_of_keys_and_values_is_compared_with_float64():
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config).eval()
    cache = DynamicCache()
    named = {"cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values": cache}
    with torch.no_grad():
        model(torch.randint(0, 50, (1, 7)), use_cache=True, **named)
    step = Sample((), {"input_ids": torch.randint(0, 50, (1, 1)), "use_cache": True, **named})
    call = Call(model)
    own = call.observe(step, seed=0).output.logits
    wide = call.in_float64().observe(as_float64(step), seed=0).output.logits
    assert wide.dtype == torch.float64
    torch.testing.assert_close(own.double(), wide, rtol=1e-4, atol=1e-5)
    assert cache.get_seq_length() == 7


def test_an_object_that_cannot_be_copied_is_passed_on():
    class Single:
        def __init__(self):
            self.content = torch.ones(2)

        def __deepcopy__(self, memo):
            raise TypeError

    single = Single()
    assert mapped(torch.clone, [single])[0] is single


def test_modules_and_plain_objects_are_passed_on():
    layer, plain = nn.Linear(2, 2), object()
    assert mapped(torch.clone, [layer, plain]) == [layer, plain]
    assert dict(parts("x", plain)) == {"x (type)": "object"}
    holder = Box(torch.ones(2), layer)  # a module in an object is shared, and so are its parameters
    copied = mapped(torch.clone, [holder])[0]
    assert copied is not holder
    assert copied.again is layer


def test_an_object_that_is_empty_before_the_call_is_copied_too():
    class Fills(nn.Module):
        def forward(self, x, box):
            box.content = x if box.content is None else box.content + x
            return box.content * 2

    empty = Sample((torch.ones(2), Box(None, None)), {})
    found = repeatability(Call(Fills()), empty, seed=0)
    assert found.deterministic
    assert not found.unrepeatable
    assert found.mutates_inputs
    assert empty.args[1].content is None
    assert "0x" not in str(describe(empty))


class Graphs:
    """A batch of graphs, as libraries have them: it can be iterated over, and moved to a device."""

    def __init__(self, count=3):
        self.nodes = torch.randn(count, 2)

    def __iter__(self):
        yield "nodes", self.nodes

    def to(self, device):
        self.nodes = self.nodes.to(device)
        return self


class Adding(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(2, 2)

    def forward(self, graphs):
        return self.part(graphs.nodes)


def test_a_batch_of_graphs_is_one_sample():
    (sample,) = as_samples(graphs := Graphs())
    assert sample.args == (graphs,)
    assert len(as_samples([Graphs(), Graphs()])) == 2
    assert not is_stream(graphs)


def test_a_loader_of_such_batches_is_a_stream():
    loader = DataLoader([1, 2], batch_size=None, collate_fn=Graphs)
    assert is_stream(loader)
    samples = as_samples(take(loader, Adding(), tries_loaders=False).calls)
    assert [sample.args[0].nodes.shape[0] for sample in samples] == [1, 2]


class Loader:
    """Holds its data on a device, and gives batches of it."""

    def __init__(self):
        self.data = torch.randn(4, 2)

    def __iter__(self):
        return iter(self.data.split(2))

    def to(self, device):
        self.data = self.data.to(device)
        return self


def test_a_loader_that_can_be_moved_is_a_stream():
    assert is_stream(Loader())


def test_a_tokenizers_result_is_given_by_name():
    encoding = BatchEncoding({"input_ids": torch.ones(1, 2, dtype=torch.long)})
    (sample,) = as_samples(encoding)
    assert (sample.args, list(sample.kwargs)) == ((), ["input_ids"])
    assert not is_stream(encoding)


def test_it_can_be_trained_on():
    training = Training(loss=lambda model, graphs: model(graphs).mean(), optimizer=torch.optim.SGD)
    assert [len(sample.args) for sample in steps_of(Graphs(), training)] == [1]


def test_a_packed_sequence_is_one_sample():
    packed = pack_sequence([torch.randn(3, 2), torch.randn(2, 2)])
    (sample,) = as_samples(packed)
    copied = clone(sample).args[0]
    assert isinstance(copied, PackedSequence)
    assert torch.equal(copied.data, packed.data)
    assert copied.data.data_ptr() != packed.data.data_ptr()
    assert repeatability(Call(nn.GRU(2, 3)), sample, seed=0).deterministic


def test_an_object_without_tensors_is_no_sample():
    with pytest.raises(InvalidWorkload, match="cannot call the model with a Part"):
        as_samples(type("Part", (), {"to": len})())
