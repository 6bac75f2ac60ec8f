"""Mismatches: named differences between where an artifact was packed and where it is loaded."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from autocompile.artifact.gpu import of_the_gpu
from autocompile.artifact.machine import of_the_library, of_the_processor
from autocompile.core.environment import GpuKind
from autocompile.core.errors import InvalidValue
from autocompile.core.identity import differences, summary
from autocompile.core.manifest import Manifest, Requirements
from autocompile.core.plan import Plan
from autocompile.core.serving import Start
from autocompile.processor import instructions
from autocompile.runtime.building import LibraryMissing, runtime
from autocompile.runtime.catalogue import kind
from autocompile.runtime.devices import gpu_index
from autocompile.runtime.model_watch import has_hooks
from autocompile.workload.gpu import gpu_kind
from autocompile.workload.identity.facts import identity_like

Name = Literal[
    "model",
    "attributes",
    "figures",
    "hooks",
    "torch",
    "python",
    "architecture",
    "instructions",
    "device",
    "capability",
    "gpu",
    "runtime",
    "library",
    "weights",
    "optimizer",
]

_GPU_NAMES: dict[str, Name] = {"capability": "capability", "gpu": "gpu", "figures": "figures"}


@dataclass(frozen=True)
class Mismatch:
    """A difference (`name`), described in words, with a remedy other than tuning again, or "".

    If the model differs (`model`), the configuration is not applied.

    A compiled program contains the old values of `attributes`. If the model's own code runs, it uses the new values.
    Then only the measurements are of another model, as they may be of another GPU (`figures`), which is noted.
    """

    name: Name
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return self.message

    @property
    def is_of_the_model(self) -> bool:
        """Whether another model was tuned."""
        return self.name == "model"

    @property
    def is_only_noted(self) -> bool:
        """Whether the artifact is used in spite of the difference."""
        return self.name == "figures"


def mismatches(manifest: Manifest, model: Any) -> tuple[Mismatch, ...]:
    """Return all differences, the most serious first."""
    return (
        *_of_the_model(manifest, model),
        *machine_mismatches(
            manifest.requirements, manifest.device_type, manifest.serving.start, gpu_index(model, manifest.device_type)
        ),
        *_of_the_runtime(manifest),
    )


def lacking(name: str, device_type: str) -> str:
    """Return why a runtime cannot run anything here, or ""."""
    try:
        runtime(name)
    except (InvalidValue, LibraryMissing) as fault:
        return str(fault)
    return kind(name).lacks(device_type)


def requirements(name: str, *, with_python: bool, device_type: str, gpu: int | None = None) -> Requirements:
    """Return the requirements of an artifact that this process packs for a runtime.

    `gpu`: the index of the GPU that it runs on, None for the current one.
    """
    kind_of_gpu = gpu_kind(gpu) if device_type == "cuda" else GpuKind()
    return Requirements(
        torch=str(torch.__version__),
        architecture=platform.machine(),
        instructions=instructions(),
        capability=kind_of_gpu.capability,
        gpu=kind_of_gpu.name,
        multiprocessors=kind_of_gpu.multiprocessors,
        python=_python() if with_python else "",
        library=kind(name).version(),
    )


def _of_the_model(manifest: Manifest, model: Any) -> Iterator[Mismatch]:
    if model is not None:
        found = differences(manifest.identity, identity_like(model, manifest.identity))
        moved = [one for one in found if one.kind == "attributes"]
        changed = [one for one in found if one.kind != "attributes"]
        if changed:
            yield Mismatch("model", f"the model is not the one that was tuned: {summary(changed)}")
        if moved and manifest.serving.start == "load":
            yield Mismatch("attributes", f"the model is not as it was tuned: {summary(moved)}")
        elif moved and manifest.plan != Plan():
            yield Mismatch("figures", f"the model was measured in another state: {summary(moved)}")
    if manifest.serving.start == "load" and has_hooks(model):
        yield Mismatch("hooks", "the model has hooks, which a compiled program does not run")


def machine_mismatches(
    needed: Requirements, device_type: str, start: Start, gpu: int | None = None
) -> Iterator[Mismatch]:
    """Yield the differences between this machine and the one that an artifact was packed for, given how it starts.

    `gpu`: the index of the GPU that the model is on, None for the current one.
    """
    if torch.__version__ != needed.torch:
        yield Mismatch("torch", f"packed with torch {needed.torch}, and this is {torch.__version__}")
    if needed.python and needed.python != _python():
        yield Mismatch("python", f"packed with Python {needed.python}, and this is {_python()}")
    for name, message in of_the_processor(needed):
        yield Mismatch("architecture" if name == "architecture" else "instructions", message)
    if device_type == "cuda" and not torch.cuda.is_available():
        yield Mismatch("device", "packed for a CUDA device, but there is none here")
    elif device_type == "cuda":
        for name, message in of_the_gpu(needed, start, gpu):
            yield Mismatch(_GPU_NAMES[name], message)


def _of_the_runtime(manifest: Manifest) -> Iterator[Mismatch]:
    name = manifest.serving.runtime
    try:
        own = kind(name)
    except InvalidValue as fault:
        yield Mismatch("runtime", str(fault))
        return
    problem = lacking(name, manifest.device_type)
    differs, remedy = of_the_library(manifest.requirements, own, manifest.device_type)
    # A program can only be loaded by the version that packed it. Only the manifest knows that version.
    is_absent = differs and not own.version() and manifest.serving.start == "load"
    if problem and not is_absent:
        yield Mismatch("runtime", problem)
    elif differs:
        yield Mismatch("library", differs, remedy)


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def grave_of(found: Iterable[Mismatch]) -> list[Mismatch]:
    """Return the differences because of which the artifact is not used."""
    return [mismatch for mismatch in found if not mismatch.is_only_noted]


def lacking_in(found: Sequence[Mismatch]) -> str:
    """Return what the runtime lacks here, so that the configuration cannot be applied at all; "" if nothing."""
    return next((mismatch.message for mismatch in found if mismatch.name == "runtime"), "")
