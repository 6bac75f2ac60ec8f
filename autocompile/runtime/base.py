"""The half of a runtime that imports torch: it builds, packs and loads. Trials and production both use it."""

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
    """A runtime cannot pack this model; the message gives the reason in one line.

    `cause` is `model` if the reason is in the model or the machine and applies to all settings, `no program` if it
    applies to all runtimes that compile programs as well, `export` if the model cannot be exported in this precision,
    `capture` if no CUDA graph of its calls can be captured, and otherwise "".
    """

    def __init__(self, message: str, cause: FailureCause = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotLoadable(Exception):
    """The runtime cannot load or run a program; the message gives the reason. `cause` is as for `NotPackable`."""

    def __init__(self, message: str, cause: FailureCause = "") -> None:
        super().__init__(message)
        self.cause = cause


class WeightsDiffer(Exception):
    """The program cannot run on the model's present weights; the message names those that differ."""


class OtherThread(Exception):
    """The built model serves only one thread, and a call came from another one; the message names both."""


@dataclass(frozen=True)
class Fault:
    """How a runtime classifies an exception: the exception to describe (`origin`) and its `kind`.

    `cause` is what in the model led to the exception; `Kind.fails_alike` uses it. If `message` is not "", it is
    reported instead of a description of `origin`.
    """

    origin: BaseException
    kind: FailureKind
    cause: FailureCause = ""
    message: str = ""


@dataclass(frozen=True)
class Trainable:
    """A model and a `loss(model, batch)` to train with. The plan compiles both of them, parts of them, or neither.

    A training loop of the user's own may call `model` alone.
    """

    model: Any
    loss: Loss


class Runtime(ABC):
    """How a runtime runs a model in this process."""

    @abstractmethod
    def build(self, step: Call, plan: Plan, samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        """Build a step that does the same work as the baseline's `step`, as `plan` says.

        The baseline and its model are not changed. `samples` are calls that the step will get; runtimes that compile
        ahead of time compile for them, and the result then raises NotPackable for calls that match no sample. With
        `isolate`, the result has its own buffers, so that two built steps do not disturb each other's state. Raises
        NotPackable if the model cannot be compiled ahead of time.
        """

    def to_train(self, _module: nn.Module, _loss: Loss, _plan: Plan, /) -> Trainable:
        """Return `_module` and `_loss` prepared for training as `_plan` says. Called only if the Kind has `trains`.

        Training uses the module's own parameters and buffers. Submodules may be compiled in place.
        """
        raise NotImplementedError(f"{type(self).__name__} runs a model and does not train it")

    def compiled_update(self, _update: Update, /) -> Update:
        """Return an optimizer's `_update` as one compiled program. Called only if the Kind has `compiles_updates`."""
        raise NotImplementedError(f"{type(self).__name__} compiles no optimizer's step")

    def prepare(self) -> None:  # noqa: B027  by default there is nothing to do
        """Import what building needs, but compute nothing: child processes are forked afterwards."""

    def problem_on(self, _device_type: str) -> str:
        """Return why the runtime cannot build for this device type, and what to do about it, or "".

        Called after the compiler has compiled a trivial program successfully.
        """
        return ""

    def cache_variables(self, _directory: str) -> dict[str, str]:
        """Return the environment variables that make the runtime keep its cache in `_directory`."""
        return {}

    def keep_headers_in(self, _directory: Path) -> None:  # noqa: B027  by default there is nothing to do
        """Make the runtime keep files of the machine's compiler, which do not belong to one run, in `_directory`."""

    def counters(self) -> Counters:
        """Return what the runtime has counted in this process so far."""
        return Counters()

    def fault(self) -> str:
        """Return why this process did not build what the plan asked for, or "". Called after the first calls."""
        return ""

    def forbid_giving_up(self) -> None:  # noqa: B027  by default there is nothing to do
        """From now on, raise an error where the compiler would fall back to eager after too many recompilations."""

    def forbid_recompiling(self) -> None:  # noqa: B027  by default there is nothing to do
        """From now on, raise an error if anything is recompiled. Also stop the compiler's worker processes."""

    def known_fault(self, _fault: BaseException) -> Fault | None:
        """Classify an exception if the runtime knows it, else return None. Any code may have raised it."""
        return None

    def is_recompile(self, _fault: BaseException) -> bool:
        """Return whether this is the exception that the runtime raises when recompiling is forbidden."""
        return False


class CachingRuntime(Runtime):
    """The base class of the runtimes whose `Kind` has `packs_as = "cache"`."""

    @abstractmethod
    def keep_cache(self, directory: Path) -> None:
        """Copy into `directory` what building and calling left in this process's cache."""

    @abstractmethod
    def install_cache(self, files: Mapping[str, bytes]) -> None:
        """Put the files that `keep_cache` saved into this process's cache."""


# Runs a loaded program on a call's tensors and returns the model's output. Raises WeightsDiffer and NotLoadable.
Loaded = Callable[[list[torch.Tensor]], Any]
