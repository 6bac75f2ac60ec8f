"""Sparse tensors in a model and among its arguments: they are compared by their indices and values."""

import pytest
import torch
from torch import nn

from autocompile.runtime.base import NotPackable
from autocompile.trial.check.repeatability import repeatability
from autocompile.trial.faults import failure_of
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call
from autocompile.workload.observation import shown
from autocompile.workload.samples import Sample


class Graph(nn.Module):
    """A layer over the neighbors in a graph. With `grows`, a call changes the weights of the graph's edges."""

    def __init__(self, layout=torch.sparse_coo, grows=False):
        super().__init__()
        self.layer, self.grows = nn.Linear(4, 3), grows
        dense = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [3.0, 0.0, 0.0]])
        self.register_buffer("edges", dense.to_sparse(layout=layout))

    def forward(self, x):
        if self.grows:
            self.edges.mul_(2)
        return torch.sparse.mm(self.edges, self.layer(x))


X = Sample((torch.randn(3, 4),), {})


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_model_with_a_sparse_buffer_is_repeatable_and_leaves_it_alone(layout):
    call = Call(Graph(layout))
    found = repeatability(call, X, seed=0)
    assert found.deterministic
    assert not found.unrepeatable
    leaves = call.observe(X, seed=0).leaves
    assert torch.equal(leaves["buffer edges after the call (values)"], torch.tensor([1.0, 2.0, 3.0]))


def test_a_write_into_a_sparse_buffer_is_seen_and_undone():
    call = Call(Graph(grows=True))
    leaves = call.observe(X, seed=0).leaves
    assert torch.equal(leaves["buffer edges after the call (values)"], torch.tensor([2.0, 4.0, 6.0]))
    assert torch.equal(call.model.edges.coalesce().values(), torch.tensor([1.0, 2.0, 3.0]))


def test_a_sparse_argument_is_no_argument_that_was_written_into():
    class Multiplies(nn.Module):
        def forward(self, a, b):
            return torch.sparse.mm(a, b)

    sparse = Sample((torch.eye(3).to_sparse(), torch.randn(3, 2)), {})
    assert not repeatability(Call(Multiplies()), sparse, seed=0).mutates_inputs


def test_sparse_tensors_of_other_sizes_differ():
    one = torch.zeros(5, 5)
    one[0, 0] = 1.0
    sizes = [dict(shown("x", part.to_sparse()))["x (size)"].tolist() for part in (one[:2, :2], one)]
    assert sizes == [[2, 2], [5, 5]]


def test_dense_values_are_shown_by_their_own_name():
    assert dict(shown("x", 3)) == {"x": 3}
    ((name, copy),) = shown("x", X.args[0])
    assert name == "x"
    assert torch.equal(copy, X.args[0])
    assert copy is not X.args[0]


@pytest.mark.parametrize(
    "fault",
    [
        NotPackable("a call changes calls, which an ONNX graph cannot do", "model"),
        NotImplementedError("could not find kernel for aten.as_strided.default at dispatch key DispatchKey.SparseCPU"),
    ],
)
def test_a_failure_that_concerns_all_candidates_of_a_runtime_has_its_cause(fault):
    found = failure_of(fault, Phases())
    assert (found.kind, found.cause) == ("unsupported", "model")
