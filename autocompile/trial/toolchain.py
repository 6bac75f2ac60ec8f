"""What this machine pays once for its compiler, paid before any candidate is charged for it."""

from __future__ import annotations

import time

import torch

from autocompile.core.outcome import Toolchain
from autocompile.runtime.building import usable
from autocompile.runtime.preparing import MISSING
from autocompile.trial.phases import Phases
from autocompile.workload.capture.script import describe_fault


def check_toolchain(name: str, phases: Phases) -> Toolchain:
    """Compile something trivial for the device of this name, as `cpu`, `cuda` or `cuda:1`, cold.

    Instruction-set probes and precompiled headers, which Inductor keeps per machine, are made on the
    way. A compiler that is missing or broken is told in `problem`; it is not an error.
    """
    started = time.perf_counter()
    device, problem = torch.device(name), ""
    with phases("toolchain"), torch.no_grad():
        try:
            argument = torch.linspace(0, 1, 4096, device=device)
            torch.compile(lambda x: torch.exp(x).sum() + x)(argument)
        except Exception as fault:  # any compiler may fail in any way
            problem = describe_fault(fault)
    return Toolchain(
        cold_s=time.perf_counter() - started,
        instruction_set=_instruction_set(device),
        problem=problem,
        missing={**MISSING, **_problems(device.type)},
    )


def _problems(device_type: str) -> dict[str, str]:
    """Of the runtimes that can be imported, those that lack something else here, with why."""
    told = {name: own.problem_on(device_type) for name, own in usable().items()}
    return {name: problem for name, problem in told.items() if problem}


def _instruction_set(device: torch.device) -> str:
    if device.type != "cpu":
        return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return torch.backends.cpu.get_cpu_capability()
