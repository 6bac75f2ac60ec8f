"""Explain in one line why a model has no program for ONNX Runtime. Used only for packing."""

from __future__ import annotations

import re
from pathlib import Path

from torch.export import ExportedProgram

from autocompile.runtime.base import NotPackable
from autocompile.runtime.explanations import Row, matched
from autocompile.runtime.onnxruntime.faults import Inexpressible
from autocompile.workload.capture.script import is_own

_ANOTHER_WAY = "compute it outside of the model, or with operators that have one"

# The converter's messages, in the innermost exception.
_CONVERSIONS = (
    Row(
        r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>",
        "{0}.{1} has no counterpart in ONNX",
        _ANOTHER_WAY,
    ),
    Row(
        r"No ONNX function found for (\S+?)\.(?:\s|$)",
        "{0} has no counterpart in ONNX",
        _ANOTHER_WAY,
    ),
)
# The library's messages about a graph.
_SESSIONS = (
    Row(
        r"Could not find an implementation for (\w+)\((\d+)\)",
        "ONNX Runtime has no {0} (operator set {1}) for these dtypes here",
        "keep the model in float32",
    ),
    Row(
        r"Type 'tensor\((\w+)\)' of input parameter \(\S*\) of operator \((\w+)\)",
        "ONNX has no {1} for {0}",
        "keep the model in float32",
    ),
)
_FRAME = re.compile(r'File "(.+)", line (\d+), in (\S+)')


def why_not_converted(fault: BaseException, program: ExportedProgram) -> str:
    """Name the operator that ONNX lacks and the line of the user's code; else return the innermost exception's line."""
    innermost = _innermost(fault)
    row, groups = matched(_CONVERSIONS, str(innermost))
    if row is None:
        return f"the conversion to ONNX fails: {_first_line(innermost)}"
    operator = ".".join(groups)
    return f"{row.reason.format(*groups)}{_place(program, operator)}; {row.advice}"


def not_opened(said: str) -> NotPackable:
    """Name the operator that the library lacks for every plan, or return its message about this plan."""
    row, groups = matched(_SESSIONS, said)
    if row is None:
        return NotPackable(f"ONNX Runtime refuses it: {said}")
    return Inexpressible(f"{row.reason.format(*groups)}; {row.advice}")


def _innermost(fault: BaseException) -> BaseException:
    while fault.__cause__ is not None:
        fault = fault.__cause__
    return fault


def _first_line(fault: BaseException) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {lines[0]}"[:400] if lines else type(fault).__name__


def _place(program: ExportedProgram, operator: str) -> str:
    """Return where the user's code calls an operator, as ` (net.py:12 in forward)`, or "" if that is not known."""
    for node in program.graph.nodes:
        if str(node.target) == operator:
            frames = [found for found in _FRAME.findall(node.meta.get("stack_trace") or "") if is_own(found[0])]
            return f" ({Path(frames[-1][0]).name}:{frames[-1][1]} in {frames[-1][2]})" if frames else ""
    return ""
