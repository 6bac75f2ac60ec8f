"""The half of a runtime that has torch: builds, packs and loads. Trials and production build through it alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autocompile.core.outcome import Counters, FailureCause, FailureKind
from autocompile.core.plan import Plan
from autocompile.runtime.built import Built
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.training.compiled_step import Update
from autocompile.workload.training.training import Loss


class NotPackable(Exception):
    """Why what a runtime makes of a model cannot be packed, in one line.

    `cause`: `model` if it lies in the model, whatever the settings, `export` if the model cannot be exported in this
    precision, `capture` if no CUDA graph can be captured of its calls; else "".
    """

    def __init__(self, message: str, cause: FailureCause = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotLoadable(Exception):
    """The runtime cannot load a program, or not run it; says why. `cause`: as of `NotPackable`."""

    def __init__(self, message: str, cause: FailureCause = "") -> None:
        super().__init__(message)
        self.cause = cause


class WeightsDiffer(Exception):
    """The model's weights are not ones that the program can run on; says which."""


class OtherThread(Exception):
    """What was built serves one thread, and this is another; says which."""


@dataclass(frozen=True)
class Fault:
    """An exception, as a runtime knows it: what is to be described (`origin`), and of which kind it is.

    `cause`: what in the model brought it about, which `Kind.fails_alike` goes by. `message`: what to say in place of
    the description, or "".
    """

    origin: BaseException
    kind: FailureKind
    cause: FailureCause = ""
    message: str = ""


@dataclass(frozen=True)
class Trainable:
    """What gives the loss of a batch, as `loss(model, batch)`: of both, the plan compiles all, a part, or nothing.

    A loop of one's own may call the `model` alone.
    """

    model: Any
    loss: Loss


class Runtime(ABC):
    """How a runtime runs a model in this process."""

    @abstractmethod
    def build(self, step: Call, plan: Plan, samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        """The same work as `step`, the baseline's, as `plan` says; the baseline and its model stay as they are.

        `samples` are calls that it will get, for runtimes that compile for them; what these build raises NotPackable
        for calls like none of them. With `isolate` it has buffers of its own, so that two of them do not disturb each
        other's state. Raises NotPackable where the model cannot be compiled ahead.
        """

    def to_train(self, _module: nn.Module, _loss: Loss, _plan: Plan, /) -> Trainable:
        """What gives `_loss` of `_module` when it is trained as `_plan` says; asked of those whose Kind `trains`.

        It computes with the module's own parameters and buffers. Submodules may be compiled where they lie.
        """
        raise NotImplementedError(f"{type(self).__name__} runs a model and does not train it")

    def compiled_update(self, _update: Update, /) -> Update:
        """What does `_update` of an optimizer as one program; asked of those whose Kind `compiles_updates`."""
        raise NotImplementedError(f"{type(self).__name__} compiles no optimizer's step")

    def prepare(self) -> None:  # noqa: B027  by default there is nothing to do
        """Import what building needs, and compute nothing: children are forked afterwards."""

    def problem_on(self, _device_type: str) -> str:
        """Why it cannot build here for such a device and what to do, or ""; asked where a trivial program compiled."""
        return ""

    def cache_variables(self, _directory: str) -> dict[str, str]:
        """Environment variables that make it keep its cache there."""
        return {}

    def keep_headers_in(self, _directory: Path) -> None:  # noqa: B027  by default there is nothing to do
        """Have it keep there what belongs to the machine's compiler, and not to a run."""

    def counters(self) -> Counters:
        """What it counted in this process so far."""
        return Counters()

    def fault(self) -> str:
        """Why what was built so far in this process is not what was asked for, once it was called, or ""."""
        return ""

    def forbid_giving_up(self) -> None:  # noqa: B027  by default there is nothing to do
        """From now on, make it an error in this process to go on in eager where too much was compiled anew."""

    def forbid_recompiling(self) -> None:  # noqa: B027  by default there is nothing to do
        """From now on, make it an error in this process that anything is compiled anew, and end what compiles."""

    def known_fault(self, _fault: BaseException) -> Fault | None:
        """What an exception was, if it is one of its own; it may have been raised by anything in this process."""
        return None

    def is_recompile(self, _fault: BaseException) -> bool:
        """Whether this is what it raises where compiling anew is forbidden."""
        return False


class CachingRuntime(Runtime):
    """What a Kind that packs as `cache` has as its other half."""

    @abstractmethod
    def keep_cache(self, directory: Path) -> None:
        """Put into `directory` what was left in this process's cache by building and calling."""

    @abstractmethod
    def install_cache(self, files: Mapping[str, bytes]) -> None:
        """Have this process find in its cache what `keep_cache` put down."""


# What runs a loaded program on a call's tensors, and gives the model's output. Raises WeightsDiffer and NotLoadable.
Loaded = Callable[[list[torch.Tensor]], Any]
