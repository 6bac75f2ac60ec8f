"""Packs and loads it; it is built as all that is compiled ahead."""

import torch

from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.export import described, exported
from autocompile.runtime.outputs import assembler


class Exported(AheadRuntime):
    def compile_ahead(self, model, plan, sample, axes, directory, name):
        export = exported(model, plan, sample, axes)
        torch.export.save(export.program, directory / f"{name}.pt2")
        return described(export, sample, axes, (f"{name}.pt2",), {"file": f"{name}.pt2"})

    def load(self, program, files, model, watch):  # its weights are its own
        run = torch.export.load(files.path(program.own["file"])).module()
        assemble = assembler(program)

        def called(tensors):
            with torch.no_grad():
                return assemble(run(*tensors))

        return called


RUNTIME = Exported()
