"""An exception in a child, as a failure of a kind."""

from __future__ import annotations

import re

import torch

from autocompile.core.errors import UsageError
from autocompile.core.outcome import Failure, FailureKind
from autocompile.trial.delivered import WrongTier
from autocompile.trial.phases import Phases
from autocompile.workload.script import describe_fault

_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|bad_alloc|Cannot allocate memory", re.IGNORECASE)
_RECOMPILED = re.compile(r"fail_on_recompile|Detected recompile", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"InvalidCxxCompiler|No working C\+\+ compiler|TritonMissing|BackendCompilerFailed.*not (found|installed)"
)


def failure_of(fault: BaseException, phases: Phases) -> Failure:
    """What `fault` was, in words and as a kind; never raises, whatever the exception's own `__str__` does."""
    try:
        message = str(fault) if isinstance(fault, UsageError) else describe_fault(fault)
    except Exception:
        message = f"{type(fault).__name__}, whose own message cannot be printed"
    return Failure(stage=phases.current, kind=_kind(fault, message), message=message[:2000])


def is_recompile(fault: BaseException) -> bool:
    """Whether this is what torch raises where compiling again is forbidden."""
    return bool(_RECOMPILED.search(f"{type(fault).__name__}: {fault}"))


def _kind(fault: BaseException, message: str) -> FailureKind:
    if isinstance(fault, UsageError):
        return "invalid"
    if isinstance(fault, WrongTier):
        return "unsupported"
    named = f"{type(fault).__name__}: {message}"
    if isinstance(fault, MemoryError | torch.cuda.OutOfMemoryError) or _NO_MEMORY.search(named):
        return "out_of_memory"
    if _RECOMPILED.search(named):
        return "recompiled"
    return "unsupported" if _UNSUPPORTED.search(named) else "error"
