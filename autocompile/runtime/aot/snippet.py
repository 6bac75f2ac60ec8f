"""AOTInductor's part of the snippet. Does not import torch."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.kind import Lines

_CALLED = """
import torch._inductor


def device_of(leaves):
    return next((x.device.type for x in leaves if isinstance(x, torch.Tensor)), "cpu")


class Exported(torch.nn.Module):
    \"\"\"The module to export. Autocast must be inside it.\"\"\"

    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        {forward}


programs = {{}}


def compiled(*args, **kwargs):
    \"\"\"Compile a program at the first call of each size, then run it. Give a package_path= to keep its file.\"\"\"
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    kinds = [(x.dtype, x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in leaves]
    key = repr((spec, kinds))
    with torch.autocast(device_of(leaves), enabled=False):
        if key not in programs:
            exported = torch.export.export(Exported(), args, kwargs, strict=False)
            package = torch._inductor.aoti_compile_and_package(exported, inductor_configs={options!r})
            programs[key] = {program}
        return programs[key](*args, **kwargs)
"""


_CAPTURED = """
def captured(program, args, kwargs):
    \"\"\"Capture the program's calls as a CUDA graph, which is replayed on copies of a call's tensors.\"\"\"
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    own = [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves]
    args, kwargs = torch.utils._pytree.tree_unflatten(own, spec)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):  # the first run loads kernels
            program(*args, **kwargs)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):
        outputs = program(*args, **kwargs)

    def replayed(*args, **kwargs):
        for mine, given in zip(own, torch.utils._pytree.tree_leaves((args, kwargs))):
            if isinstance(mine, torch.Tensor):
                mine.copy_(given)
        graph.replay()
        owned = lambda x: x.clone() if isinstance(x, torch.Tensor) else x
        return torch.utils._pytree.tree_map(owned, outputs)

    return replayed
"""


_LOADED = "torch._inductor.aoti_load_package(package)"
_LOADED_TO_CAPTURE = "captured(torch._inductor.aoti_load_package(package, run_single_threaded=True), args, kwargs)"
_FORWARD = "return self.model(*args, **kwargs)"
_REDUCED = """with torch.autocast(device_of(torch.utils._pytree.tree_leaves((args, kwargs))), dtype=torch.{dtype}):
            return self.model(*args, **kwargs)"""


def lines_of(plan: Plan) -> Lines:
    """Return the lines that export a `model` and compile it ahead for each kind of call, with a copy of the weights."""
    forward = _REDUCED.format(dtype=plan.autocast) if plan.autocast else _FORWARD
    settings = settings_of(plan)
    program = _LOADED_TO_CAPTURE if settings.is_captured else _LOADED
    code = _CALLED.format(forward=forward, options=settings.compiled_with, program=program)
    return Lines(setup=tuple(((_CAPTURED if settings.is_captured else "") + code).splitlines()))
