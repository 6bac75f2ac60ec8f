"""An exception in a child, as a failure of a kind."""

from __future__ import annotations

import contextlib
import re

import torch
from torch._dynamo.utils import get_compilation_metrics

from autocompile.core.errors import UsageError
from autocompile.core.outcome import Failure, FailureCause, FailureKind
from autocompile.runtime.base import NotPackable
from autocompile.runtime.building import LibraryMissing
from autocompile.runtime.recompiled import explained, reasons_in
from autocompile.trial.phases import Phases
from autocompile.workload.capture.script import describe_fault

_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|bad_alloc|Cannot allocate memory", re.IGNORECASE)
_RECOMPILED = re.compile(r"fail_on_recompile|Detected recompile", re.IGNORECASE)
_UNTRACEABLE = ("InternalTorchDynamoError", "UserError", "UncapturedHigherOrderOpError")
_UNSUPPORTED = re.compile(
    r"InvalidCxxCompiler|No working C\+\+ compiler|TritonMissing|BackendCompilerFailed.*not (found|installed)"
)


class ServedOtherwise(Exception):
    """The artifact did not serve as it was packed to; says why."""


def failure_of(fault: BaseException, phases: Phases) -> Failure:
    """What `fault` was, in words and as a kind; never raises, whatever the exception's own `__str__` does."""
    try:
        message = str(fault) if isinstance(fault, UsageError | LibraryMissing) else describe_fault(_innermost(fault))
    except Exception:
        message = f"{type(fault).__name__}, whose own message cannot be printed"
    kind, cause = _kind(fault, message), _cause(fault)
    if kind == "recompiled":
        with contextlib.suppress(Exception):  # the compiler's own records may be of another form
            again = explained(reasons_in(str(fault)) or _counted_reasons(), str(fault))
            message, cause = again.message, again.cause
    return Failure(stage=phases.current, kind=kind, message=message[:2000], cause=cause)


def _innermost(fault: BaseException) -> BaseException:
    """What a compiler's backend raised, in place of the sentence that it raised something."""
    inner = getattr(fault, "inner_exception", None)
    return inner if type(fault).__name__ == "BackendCompilerFailed" and isinstance(inner, Exception) else fault


def _cause(fault: BaseException) -> FailureCause:
    """Whether the compiler's tracer itself gave up, which it does before any backend's options are looked at."""
    return "untraceable" if type(fault).__name__ in _UNTRACEABLE else ""


def _counted_reasons() -> list[str]:
    """Why this process compiled again so far, as the compiler's own records tell."""
    metrics = get_compilation_metrics()
    return [str(compiled.recompile_reason) for compiled in metrics if compiled.recompile_reason]


def is_recompile(fault: BaseException) -> bool:
    """Whether this is what torch raises where compiling again is forbidden."""
    return bool(_RECOMPILED.search(f"{type(fault).__name__}: {fault}"))


def _kind(fault: BaseException, message: str) -> FailureKind:
    if isinstance(fault, UsageError):
        return "invalid"
    if isinstance(fault, ServedOtherwise | NotPackable | LibraryMissing):
        return "unsupported"
    named = f"{type(fault).__name__}: {message}"
    if isinstance(fault, MemoryError | torch.cuda.OutOfMemoryError) or _NO_MEMORY.search(named):
        return "out_of_memory"
    if _RECOMPILED.search(named):
        return "recompiled"
    return "unsupported" if _UNSUPPORTED.search(named) else "error"
