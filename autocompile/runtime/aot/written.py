"""Export a model as a package of AOTInductor, with its weights, which torch itself can load."""

from __future__ import annotations

from pathlib import Path

from autocompile.runtime.aot.compile import IN_THE_CODE, write_package
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.base import NotPackable
from autocompile.runtime.example import Arrays, Code
from autocompile.runtime.writer import Source, Wiring, Writer
from autocompile.workload.attention import attention_as
from autocompile.workload.tf32 import products_as

_IMPORTS = """
from pathlib import Path

import torch
import torch._inductor
"""
_SETUP = """
DEVICE = "{device}"
# The memory layouts of the inputs. The program was compiled for them and does not check them.
LAYOUTS = [{layouts}]
{settings}program = torch._inductor.aoti_load_package(str(MODEL))
"""
_RUN = """
    laid_out = [one.contiguous(memory_format=layout) for one, layout in zip(inputs, LAYOUTS, strict=True)]
    with torch.no_grad():
        return list(program(*laid_out))
"""
_LAYOUTS = {"contiguous": "torch.contiguous_format", "channels_last": "torch.channels_last"}


class PackageWriter(Writer):
    """Writes a closed package: it contains the weights and takes only the call's tensors."""

    arrays: Arrays = "torch"

    def write(self, source: Source, path: Path) -> Wiring:
        strange = next((guard.path for guard in source.guards if guard.layout not in _LAYOUTS), "")
        if strange:
            raise NotPackable(f"argument {strange} is not contiguous; call .contiguous() on it")
        with products_as(source.plan.float32), attention_as(source.plan.attention):
            write_package(source.export.program, {**settings_of(source.plan).compiled_with, IN_THE_CODE: True}, path)
        return Wiring(tuple(range(len(source.inputs))), tuple(range(len(source.outputs))))

    def code(self, source: Source) -> Code:
        threads = source.plan.threads
        settings = [f"torch.set_num_threads({threads})\n"] if threads else []
        if source.plan.float32:
            settings.append("torch.backends.cuda.matmul.allow_tf32 = True\n")
        return Code(
            needs="torch in the version that README.md names, on the same kind of machine",
            imports=_IMPORTS,
            setup=_SETUP.format(
                device=source.device_type,
                layouts=", ".join(_LAYOUTS[guard.layout] for guard in source.guards),
                settings="".join(settings),
            ),
            run=_RUN,
        )


WRITER = PackageWriter()
