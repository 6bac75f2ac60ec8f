"""Check the compiler, and pay its one-time costs on this machine before any candidate is measured."""

from __future__ import annotations

import time

import torch

from autocompile.core.outcome import Toolchain
from autocompile.runtime.building import usable
from autocompile.runtime.preparing import MISSING
from autocompile.trial.phases import Phases
from autocompile.workload.capture.script import describe_fault


def check_toolchain(name: str, phases: Phases) -> Toolchain:
    """Compile a trivial function, with a cold cache, for the device named `cpu`, `cuda` or `cuda:1`.

    This also makes the instruction-set probes and precompiled headers that Inductor keeps per machine. A compiler
    that is missing or broken is not an error: `problem` of the result describes it.
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
    """Return the runtimes that can be imported but lack something else on this machine, each with the reason."""
    told = {name: own.problem_on(device_type) for name, own in usable().items()}
    return {name: problem for name, problem in told.items() if problem}


def _instruction_set(device: torch.device) -> str:
    if device.type != "cpu":
        return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return torch.backends.cpu.get_cpu_capability()
