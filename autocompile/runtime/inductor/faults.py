"""Classify the exceptions of Dynamo and its backends."""

from __future__ import annotations

import contextlib
import re

from autocompile.runtime.base import Fault
from autocompile.runtime.recompiled import explained, reasons_in
from autocompile.workload.capture.script import describe_fault

_RECOMPILED = re.compile(r"fail_on_recompile|Detected recompile", re.IGNORECASE)
_UNTRACEABLE = ("InternalTorchDynamoError", "UserError", "UncapturedHigherOrderOpError")
_UNSUPPORTED = re.compile(
    r"InvalidCxxCompiler|No working C\+\+ compiler|TritonMissing|BackendCompilerFailed.*not (found|installed)"
)


def fault_of(fault: BaseException) -> Fault:
    """Classify an exception, and add what the compiler's own records say about it."""
    origin = _innermost(fault)
    named = f"{type(fault).__name__}: {describe_fault(origin)}"
    if _RECOMPILED.search(named):
        with contextlib.suppress(Exception):  # the compiler's own records may have another form
            again = explained(reasons_in(str(fault)) or _counted_reasons(), str(fault))
            return Fault(origin, "recompiled", again.cause, again.message)
        return Fault(origin, "recompiled", _cause(fault))
    return Fault(origin, "unsupported" if _UNSUPPORTED.search(named) else "error", _cause(fault))


def is_recompile(fault: BaseException) -> bool:
    """Return whether this is the exception that torch raises when recompilation is forbidden."""
    return bool(_RECOMPILED.search(f"{type(fault).__name__}: {fault}"))


def _innermost(fault: BaseException) -> BaseException:
    """Return the exception from the compiler's backend instead of the one that wraps it."""
    inner = getattr(fault, "inner_exception", None)
    return inner if type(fault).__name__ == "BackendCompilerFailed" and isinstance(inner, Exception) else fault


def _cause(fault: BaseException) -> str:
    """Return whether the compiler's tracer itself gave up, which does not depend on the backend's options."""
    return "untraceable" if type(fault).__name__ in _UNTRACEABLE else ""


def _counted_reasons() -> list[str]:
    """Return the reasons why this process has recompiled so far, from the compiler's own records."""
    from torch._dynamo.utils import get_compilation_metrics  # noqa: PLC0415  production must not import it

    metrics = get_compilation_metrics()
    return [str(compiled.recompile_reason) for compiled in metrics if compiled.recompile_reason]
