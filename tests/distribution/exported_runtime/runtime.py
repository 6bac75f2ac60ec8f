"""Builds, packs and loads it."""

import io

import torch

from autocompile.runtime.base import NotPackable, Runtime
from autocompile.runtime.built import Built, transformed
from autocompile.runtime.export import described, exported
from autocompile.runtime.guarded import Guarded
from autocompile.runtime.outputs import assembler
from autocompile.scratch import Scratch
from autocompile.workload.samples import device_of


class Exported(Runtime):
    def build(self, step, plan, samples, /, *, isolate):
        if not samples:
            raise NotPackable("nothing can be exported without a call to export for")
        target = transformed(step.model, plan, isolate=isolate)
        with Scratch() as directory:
            programs = [
                self.compile_ahead(target, plan, sample, (), directory, f"program{number}")
                for number, sample in enumerate(samples)
            ]
            guarded = Guarded(programs, self, directory, target, device_of(samples[0]))
        return Built(guarded, plan, step.device_type, target)

    def compile_ahead(self, model, plan, sample, axes, directory, name):
        export = exported(model, plan, sample, axes)
        torch.export.save(export.program, directory / f"{name}.pt2")
        return described(export, sample, axes, (f"{name}.pt2",), {"file": f"{name}.pt2"})

    def load(self, program, files, model, watch):  # its weights are its own
        run = torch.export.load(io.BytesIO(files[program.own["file"]])).module()
        assemble = assembler(program)

        def called(tensors):
            with torch.no_grad():
                return assemble(run(*tensors))

        return called


RUNTIME = Exported()
