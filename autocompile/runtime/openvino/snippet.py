"""OpenVINO's part of the snippet. Does not import torch."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.runtime.kind import Lines

_PRECISIONS = {"": "f32", "bfloat16": "bf16", "float16": "f16"}
_CONVERTED = """
def index_add(own, dim, index, source, *, alpha=1):
    \"\"\"Do the same as torch's operator of this name, which OpenVINO cannot convert.\"\"\"
    places = [None] * (dim % max(own.dim(), 1)) + [index]
    return torch.ops.aten.index_put(own, places, source if alpha == 1 else source * alpha, accumulate=True)

def converted(args, kwargs):
    \"\"\"Return a request that runs calls of these sizes, and the structure of the output.\"\"\"
    with torch.autocast("cpu", enabled=False):  # the precision is set below
        program = torch.export.export(model, args, kwargs)
    program = program.run_decompositions({{torch.ops.aten.index_add.default: index_add}})
    options = {{
        "INFERENCE_PRECISION_HINT": "{precision}",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": {threads},
        "ENABLE_CPU_PINNING": False,
    }}
    compiled = core.compile_model(openvino.convert_model(program), "CPU", options)
    return compiled.create_infer_request(), program.call_spec.out_spec

def compiled(args, kwargs):
    \"\"\"Return the model's output. The first call of each size converts the model.\"\"\"
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    tensors = [leaf.contiguous() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = str([(leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    if sizes not in requests:
        requests[sizes] = converted(args, kwargs)
    request, structure = requests[sizes]
    outputs = request.infer([tensor.numpy() for tensor in tensors], share_inputs=True).values()
    return torch.utils._pytree.tree_unflatten([torch.from_numpy(output) for output in outputs], structure)
"""


def lines_of(plan: Plan) -> Lines:
    """Return the lines that convert a `model` for the sizes that it is called with, and call it."""
    helpers = _CONVERTED.format(precision=_PRECISIONS[plan.autocast], threads=plan.threads or "torch.get_num_threads()")
    return Lines(
        setup=("import openvino", "", "core, requests = openvino.Core(), {}"),
        helpers=tuple(helpers.rstrip().splitlines()),
        call="compiled(args, kwargs)",
    )
