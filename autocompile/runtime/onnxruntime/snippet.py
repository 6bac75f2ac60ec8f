"""ONNX Runtime's part of the snippet. Does not import torch."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.runtime.kind import Lines
from autocompile.runtime.onnxruntime.library import entries
from autocompile.runtime.onnxruntime.settings import settings_of

_SETUP = """
import os
import tempfile

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime  # onnx and onnxscript have to be installed, too
from torch.utils import _pytree as pytree

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_{level}
options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
{entries}converted = {{}}
"""

_HELPERS = '''
class OverTensors(torch.nn.Module):
    """The model as a function from a call's tensors to a list of tensors."""

    def __init__(self, leaves, structure):
        super().__init__()
        self.model, self.structure = model, structure
        self.others = lambda: [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]

    def forward(self, *tensors):
        following = iter(tensors)
        leaves = [next(following) if other is None else other[0] for other in self.others()]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return [leaf for leaf in pytree.tree_leaves(self.model(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]

def session_for(leaves, structure, tensors):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.onnx")
        over_tensors = OverTensors(leaves, structure).eval()
        torch.onnx.export(over_tensors, tensors, path, dynamo=True, verbose=False, external_data=True)
        provider = "CUDAExecutionProvider" if tensors[0].is_cuda else "CPUExecutionProvider"
        return onnxruntime.InferenceSession(path, options, providers=[provider])

def compiled(*args, **kwargs):
    """Return the model's output. The first call of each size, and of each value of other arguments, converts it."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    kind = str([(leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    if kind not in converted:
        converted[kind] = session_for(leaves, structure, tensors), pytree.tree_flatten(model(*args, **kwargs))
    session, (outputs, structure) = converted[kind]
    names = [one.name for one in session.get_inputs()]
    found = iter(session.run(None, {name: x.detach().cpu().numpy() for name, x in zip(names, tensors)}))
    device = tensors[0].device
    outputs = [torch.from_numpy(next(found)).to(device) if isinstance(x, torch.Tensor) else x for x in outputs]
    return pytree.tree_unflatten(outputs, structure)
'''


def lines_of(plan: Plan) -> Lines:
    """Return the lines that convert a `model` at the first call of each size, and call it."""
    settings = settings_of(plan)
    given = entries(spins=settings.spinning)
    lines = "".join(f"options.add_session_config_entry({key!r}, {given[key]!r})\n" for key in given)
    setup = _SETUP.format(level=settings.graph_optimization.upper(), entries=lines)
    return Lines(setup=tuple(setup.strip().splitlines()), helpers=tuple(_HELPERS.rstrip().splitlines()))
