"""What this machine pays once for its compiler, paid before any candidate is charged for it."""

from __future__ import annotations

import time

import torch

from autocompile.core.outcome import Toolchain
from autocompile.runtime.building import usable
from autocompile.runtime.preparing import MISSING
from autocompile.trial.phases import Phases
from autocompile.workload.capture.script import describe_fault


def check_toolchain(device_type: str, phases: Phases) -> Toolchain:
    """Compile something trivial, cold.

    Instruction-set probes and precompiled headers, which Inductor keeps per machine, are made on the
    way. A compiler that is missing or broken is told in `problem`; it is not an error.
    """
    started = time.perf_counter()
    problem = ""
    with phases("toolchain"), torch.no_grad():
        try:
            argument = torch.linspace(0, 1, 4096, device=device_type)
            torch.compile(lambda x: torch.exp(x).sum() + x)(argument)
        except Exception as fault:  # any compiler may fail in any way
            problem = describe_fault(fault)
    return Toolchain(
        cold_s=time.perf_counter() - started,
        instruction_set=_instruction_set(device_type),
        problem=problem,
        missing={**MISSING, **_problems(device_type)},
    )


def _problems(device_type: str) -> dict[str, str]:
    """Of the runtimes that can be imported, those that lack something else here, with why."""
    told = {name: own.problem_on(device_type) for name, own in usable().items()}
    return {name: problem for name, problem in told.items() if problem}


def _instruction_set(device_type: str) -> str:
    if device_type != "cpu":
        return torch.cuda.get_device_name() if device_type == "cuda" else device_type
    return torch.backends.cpu.get_cpu_capability()
