"""AOTInductor's part of the snippet. No torch."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.kind import Lines

_CALLED = """
import torch._inductor


def device_of(leaves):
    return next((x.device.type for x in leaves if isinstance(x, torch.Tensor)), "cpu")


class Exported(torch.nn.Module):
    \"\"\"What is exported, which has to be a module; autocast has to lie within it.\"\"\"

    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        {forward}


programs = {{}}


def compiled(*args, **kwargs):
    \"\"\"A program for calls of these sizes, compiled at the first; its file can be kept: give a package_path=.\"\"\"
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    kinds = [(x.dtype, x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in leaves]
    key = repr((spec, kinds))
    with torch.autocast(device_of(leaves), enabled=False):
        if key not in programs:
            exported = torch.export.export(Exported(), args, kwargs, strict=False)
            package = torch._inductor.aoti_compile_and_package(exported, inductor_configs={options!r})
            programs[key] = torch._inductor.aoti_load_package(package)
        return programs[key](*args, **kwargs)
"""


_FORWARD = "return self.model(*args, **kwargs)"
_REDUCED = """with torch.autocast(device_of(torch.utils._pytree.tree_leaves((args, kwargs))), dtype=torch.{dtype}):
            return self.model(*args, **kwargs)"""


def lines_of(plan: Plan) -> Lines:
    """What exports a `model` and compiles it ahead, for each kind of call; the package has a copy of the weights."""
    forward = _REDUCED.format(dtype=plan.autocast) if plan.autocast else _FORWARD
    code = _CALLED.format(forward=forward, options=dict(settings_of(plan).options))
    return Lines(setup=tuple(code.splitlines()))
