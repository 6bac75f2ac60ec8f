"""Floor 5: checks whether this machine is fit for tuning. No torch: a child process checks what needs torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from autocompile.core.environment import Environment
from autocompile.core.errors import RunnerError
from autocompile.core.job import Limits, ToolchainTask
from autocompile.core.notices import BUSY_SHARE
from autocompile.core.outcome import Toolchain
from autocompile.core.serde import Record
from autocompile.core.units import format_bytes, format_duration
from autocompile.gpus import GpuState, gpu_states, has_device_file
from autocompile.host import current_load, environment
from autocompile.runner.local import LocalRunner
from autocompile.runtime.catalogue import broken, kinds, problem_here
from autocompile.runtime.kind import Kind
from autocompile.scratch import Scratch
from autocompile.search.errand import reply_to
from autocompile.space.surroundings import Surroundings

_COMPILE_S = 120.0


class Finding(Record, frozen=True):
    """One line of the check-up; `remedy` fixes the problem.

    `state`: `good`; `poor` (it works, but measurements are less precise, or fewer candidates can be tried); `optional`
    (an extra that is not installed); or `missing`.
    """

    subject: str
    state: Literal["good", "poor", "optional", "missing"]
    found: str
    remedy: str = ""


def check_up() -> list[Finding]:
    """Inspect the machine, then compile a trivial function on each available device type."""
    machine = environment()
    gpus = [finding for state in gpu_states() for finding in of_gpu(state)]
    return [*_of_machine(machine), *gpus, *_of_load(), *_of_torch(machine)]


def _of_machine(machine: Environment) -> Iterator[Finding]:
    features = ", ".join(machine.cpu_features) or "unknown"
    yield Finding(subject="processor", state="good", found=f"{machine.cpu}, {machine.cores} usable cores ({features})")
    yield Finding(subject="memory", state="good", found=format_bytes(machine.memory_bytes))
    if machine.gpus:
        names = ", ".join(map(str, machine.gpus))
        yield Finding(subject="GPU", state="good", found=f"{names}, driver {machine.driver}")
    elif has_device_file():
        found = "NVML reports none, though a device file exists: other processes on the GPU cannot be detected"
        remedy = "also give the container NVML's library: NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        yield Finding(subject="GPU", state="poor", found=found, remedy=remedy)
    else:
        yield Finding(subject="GPU", state="good", found="NVML reports none; CPU models can be tuned")
    if machine.compiler:
        yield Finding(subject="C++ compiler", state="good", found=machine.compiler)
    else:
        yield Finding(
            subject="C++ compiler",
            state="missing",
            found="none on PATH: on the CPU, only eager configurations can be tried",
            remedy="apt-get install g++, or set CXX",
        )


def of_gpu(state: GpuState) -> Iterator[Finding]:
    """Yield what prevents or disturbs measurements on a GPU, and whether it is divided into MIG slices."""
    name = state.gpu.name
    if state.is_sliced and state.slices:
        seen = ", ".join(map(str, state.slices))
        told = "NVML reports neither the load of a slice nor other processes on it, so kernels are profiled instead"
        yield Finding(subject="GPU", state="good", found=f"{name} is divided into MIG slices; here: {seen}. {told}")
    elif state.is_sliced:
        remedy = "create one with nvidia-smi mig -cgi PROFILE -C, or give this container one"
        yield Finding(
            subject="GPU", state="missing", found=f"{name} is in MIG mode, and no slice is visible here", remedy=remedy
        )
    if state.open_to == "none":
        remedy = "nvidia-smi -c DEFAULT, as root"
        yield Finding(
            subject="GPU", state="missing", found=f"the compute mode of {name} prohibits all processes", remedy=remedy
        )
    if state.open_to == "one process":
        found = f"only one process at a time may use {name}: a trial fails while another process uses it"
        yield Finding(subject="GPU", state="poor", found=found, remedy="nvidia-smi -c DEFAULT, as root")
    if state.has_display:
        found = f"{name} drives a display, which disturbs timings and uses GPU memory"
        remedy = "leave the desktop idle while tuning, or connect the display to another GPU"
        yield Finding(subject="GPU", state="poor", found=found, remedy=remedy)
    if state.busy_share is not None and state.busy_share > BUSY_SHARE:
        found, remedy = f"{name} is {state.busy_share:.0%} busy", "stop other processes that use it; see nvidia-smi"
        yield Finding(subject="GPU", state="poor", found=found, remedy=remedy)
    if state.throttled:
        found, remedy = f"the clocks of {name} are lowered ({state.throttled})", "cool it, or wait until it has cooled"
        yield Finding(subject="GPU", state="poor", found=found, remedy=remedy)


def _of_load() -> Iterator[Finding]:
    load = current_load(1.0)
    found = f"{load.busy_share:.0%} busy, {load.steal_share:.0%} stolen, {load.runnable_per_core:.1f} runnable per core"
    if load.busy_share > BUSY_SHARE or load.steal_share > BUSY_SHARE:
        yield Finding(
            subject="load",
            state="poor",
            found=found,
            remedy="stop other processes: they make timings longer and less precise",
        )
    else:
        yield Finding(subject="load", state="good", found=found)


def _of_torch(machine: Environment) -> Iterator[Finding]:
    if not machine.torch:
        yield Finding(subject="torch", state="missing", found="not installed", remedy="pip install torch")
        return
    yield Finding(subject="torch", state="good", found=f"{machine.torch}, Python {machine.python}")
    devices = ("cpu", *(["cuda"] if machine.gpus or has_device_file() else []))
    with Scratch() as work:
        try:
            with LocalRunner(work / "jobs", work / "toolchain") as runner:
                toolchains = {device: _toolchain(runner, device) for device in devices}
        except RunnerError as fault:
            yield Finding(subject="trials", state="missing", found=str(fault), remedy='try `python -c "import torch"`')
            return
    yield from (_compiling(device, toolchain) for device, toolchain in toolchains.items())
    yield from _of_runtimes(machine, toolchains)


def _toolchain(runner: LocalRunner, device: str) -> Toolchain:
    reply = reply_to(runner, ToolchainTask(device=device), Limits(total_s=_COMPILE_S), Toolchain, cache="toolchain")
    return reply if isinstance(reply, Toolchain) else Toolchain(0.0, "", reply.message)


def _compiling(device: str, toolchain: Toolchain) -> Finding:
    subject = f"torch.compile on {device}"
    if not toolchain.problem:
        return Finding(
            subject=subject, state="good",
            found=f"works for {toolchain.instruction_set}; the first compile took {format_duration(toolchain.cold_s)}",
        )  # fmt: skip
    return Finding(
        subject=subject, state="missing", found=f"{toolchain.problem}: only eager configurations can be tried",
        remedy="install a C++ compiler" if device == "cpu" else "install a CUDA build of torch with Triton",
    )  # fmt: skip


def _of_runtimes(machine: Environment, toolchains: Mapping[str, Toolchain]) -> Iterator[Finding]:
    """Yield every runtime with its version; if it cannot be used on any device here, with the reason and a remedy."""
    surroundings = [
        Surroundings(
            device, machine.cores, is_module=True, has_conv=True, signature_count=1,
            compiler_problem=toolchain.problem, missing=tuple(toolchain.missing.items()),
        )
        for device, toolchain in toolchains.items()
    ]  # fmt: skip
    for kind in kinds():
        subject, version = f"runtime {kind.name}", kind.version()
        problems = [problem_here(kind, around) for around in surroundings]
        if all(problems):
            found, _, remedy = problems[0].partition("; ")
            installs = kind.library and not version
            remedy = kind.install if installs else remedy or "see above"
            state: Literal["optional", "missing"] = "optional" if installs and kind.extra else "missing"
            yield Finding(subject=subject, state=state, found=found, remedy=remedy)
        else:
            needs = f"{kind.library} {version}" if kind.library else f"torch {machine.torch}"
            yield Finding(subject=subject, state="good", found=f"{kind.meaning} ({needs.strip()})")
            yield from _lacking(kind, toolchains)
    for fault in broken():
        yield Finding(subject="runtime", state="missing", found=fault, remedy="fix or uninstall its distribution")


def _lacking(kind: Kind, toolchains: Mapping[str, Toolchain]) -> Iterator[Finding]:
    """Yield what a runtime that works on one device lacks on another."""
    for device, toolchain in toolchains.items():
        if kind.name in toolchain.missing:
            found, _, remedy = toolchain.missing[kind.name].partition("; ")
            yield Finding(subject=f"runtime {kind.name} on {device}", state="missing", found=found, remedy=remedy)
