"""Explain the compiler's reasons in plain English, with advice on what to write instead.

Each common kind has one row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.outcome import FailureCause

_OUTSIDE = "call it outside of the model and pass its result in, or register it with torch.library.custom_op"
_GUARDED = "remove it, or put `if not torch.compiler.is_compiling():` before it"
_SCALARS = "set torch._dynamo.config.capture_scalar_outputs = True"
_SHAPES = "set torch._dynamo.config.capture_dynamic_output_shape_ops = True"


@dataclass(frozen=True)
class Row:
    """A pattern in the compiler's message, the `reason` in plain English, and the `advice`.

    The groups of the pattern fill in `reason` and `advice`. `cause`, where it is known, tells which other candidates
    fail for the same reason.
    """

    pattern: str
    reason: str
    advice: str
    cause: FailureCause = ""


# The first row that matches counts, so that special rows come before general ones.
BREAKS = (
    Row(
        r"builtin operator `print`|builtin print",
        "print() has to run in Python",
        _GUARDED,
    ),
    Row(
        r"logging\.Logger|qualname: (?:warn|Logger)|`_?warnings\.warn",
        "a log message or warning has to run in Python",
        _GUARDED,
    ),
    Row(
        r"Data-dependent branching|generic_jump",
        "a Python branch (if, while, and, or) depends on the value of a tensor",
        "compute both and select with torch.where(condition, a, b), or use torch.cond if only one branch may run",
    ),
    Row(
        r"Data-dependent assertion|Assertion failed on symbolic",
        "an assert depends on the value of a tensor",
        "use torch._check or torch._assert_async, or " + _GUARDED,
    ),
    Row(
        r"Tensor\.item\(\)|_local_scalar_dense|capture_scalar_outputs",
        "the value of a tensor is taken into Python (.item(), float(), int(), or numpy)",
        f"keep it a tensor: torch.where in place of a branch, tensor arithmetic in place of numbers; or {_SCALARS}",
    ),
    Row(
        r"Tensor\.tolist\(\)|call_method TensorVariable\(\) to_?list",
        "a tensor becomes a Python list",
        "keep it a tensor, and use indexing or torch.stack where the list was used",
    ),
    Row(
        r"Dynamic shape operator|capture_dynamic_output_shape_ops",
        "the size of a result depends on the values of a tensor (x[mask], nonzero, unique)",
        f"keep the size with torch.where(mask, x, 0), or multiply by the mask, or {_SHAPES}",
    ),
    Row(
        r"torch\._dynamo\.graph_break\(\)",
        "torch._dynamo.graph_break() requests a graph break",
        "remove that call",
    ),
    Row(
        r"torch\.compiler\.disable",
        "torch.compiler.disable excludes a function from compilation",
        "remove the decorator if it is not needed any more, or call the function outside of the model",
    ),
    Row(
        r"Unsupported context manager[\s\S]*?enter a `(\w+)`",
        "the compiler cannot enter a {0} in a with statement",
        "enter it outside of the model",
    ),
    Row(
        r"method `(\w+)` of class `(\w+)`",
        "the compiler cannot trace {1}.{0}()",
        _OUTSIDE,
    ),
    Row(
        r"builtin operator `(\w+)`",
        "the compiler cannot trace {0}()",
        _OUTSIDE,
    ),
    Row(
        r"module: ([\w.]+), qualname: ([\w.<>]+)",
        "the compiler does not trace {0}.{1}()",
        _OUTSIDE,
    ),
    Row(
        r"graph break in loop|graph break in a for/while loop",
        "the graph breaks inside a loop, so the whole function runs in Python",
        "move the code that breaks the graph out of the loop",
    ),
    Row(
        r"Observed exception",
        "the code raises an exception",
        "test for the condition instead of raising and catching an exception",
    ),
    Row(
        r"backward hook|register_hook|Tensor hook",
        "a hook on a tensor or module has to run in Python",
        "remove it before compiling",
    ),
)

# The exporter's messages about models that it cannot export.
EXPORTS = (
    Row(
        r"GuardOnDataDependentSymNode|data-dependent expression|DataDependentOutputException",
        "the model's control flow depends on the values of a tensor (a branch, .item(), or a size)",
        "compute both results and select with torch.where",
        "no program",
    ),
    Row(
        r"\.numpy\(\) is not supported",
        "a tensor is converted to NumPy",
        "use torch functions instead",
        "no program",
    ),
    Row(
        r"your code specialized it to be a constant \((\d+)\)",
        "the code fixes a size that must vary to {0}",
        "read the size from x.shape in forward instead of a constant",
    ),
    Row(
        r"Not all values of \w+ = [\s\S]*?satisfy the generated guard",
        "the model behaves differently for certain sizes",
        "do not branch on a size in forward",
    ),
)

# An attribute of the model or of an object in it: `self.calls`, `self.layers[0].seen`, `self.options['k']`.
_ATTRIBUTE = r"([A-Za-z_]\w*(?:\[[^\]]*\])*(?:\.[A-Za-z_]\w*(?:\[[^\]]*\])*)+)"
_KEEP_STILL = "make it a tensor (register_buffer), or do not change it in forward"

# The patterns are applied to the result of `runtime.recompiled.legible`.
RECOMPILES = (
    Row(
        r"GLOBAL_STATE|grad_mode|___check_global_state",
        "a global setting of torch has changed (grad mode, autocast, threads, determinism)",
        "set it only once, before the first call",
    ),
    Row(
        rf"tensor '{_ATTRIBUTE}' size mismatch",
        "`{0}` changes its size from call to call",
        "give it its final size in __init__, or pass it in and return it",
        "state changes",
    ),
    Row(
        r"tensor '(.+?)' size mismatch at index (\d+)\. expected (\d+), actual (\d+)",
        "{0} has another size in axis {1}: {2}, then {3}",
        "let that axis vary: torch._dynamo.mark_dynamic({0}, {1}) before the first call, or compile with dynamic=True",
        "size changes",
    ),
    Row(
        r"(\w+)\.size\(\)\[(\d+)\]",
        "{0} has another size in axis {1}, and the compiled program is valid for certain sizes only",
        "do not branch on that size in forward; a size of 1 always needs its own program",
        "size changes",
    ),
    Row(
        r"tensor '(.+?)' stride mismatch at index (\d+)",
        "{0} has another memory layout (strides)",
        "call .contiguous() on it before the model",
        "argument changes",
    ),
    Row(
        r"tensor '(.+?)' dtype mismatch\. expected (\S+), actual (\S+?)\.?$",
        "{0} has another dtype: {1}, then {2}",
        "convert it to one dtype before the model",
        "argument changes",
    ),
    Row(
        r"tensor '(.+?)' (?:rank|dim\w*) mismatch\. expected (\d+), actual (\d+)",
        "{0} has another number of axes: {1}, then {2}",
        "reshape it before the model, so that all calls have the same number of axes",
        "argument changes",
    ),
    Row(
        r"tensor '(.+?)' requires_grad mismatch",
        "{0} requires gradients in some calls and not in others",
        "detach it, or always call the model under torch.no_grad()",
        "argument changes",
    ),
    Row(
        r"tensor '(.+?)' dispatch key set mismatch",
        "{0} was made in another mode, such as torch.inference_mode",
        "create and use it in the same mode",
        "argument changes",
    ),
    Row(
        r"expected type of '([^']+)'|___check_type_id\((\w+),",
        "the argument {0} is of another type",
        "always pass the same type",
        "argument changes",
    ),
    Row(
        r"G\['(\w+)'\]",
        "the global `{0}` changes from call to call",
        "pass it as a tensor, or read it once in __init__",
        "state changes",
    ),
    Row(
        rf"len\({_ATTRIBUTE}\)",
        "`{0}` changes its length from call to call",
        "do not collect values in forward; return them instead",
        "state changes",
    ),
    Row(
        r"(?<![\w'.])" + _ATTRIBUTE,
        "`{0}` changes from call to call",
        _KEEP_STILL,
        "state changes",
    ),
    Row(
        r"len\((\w+)\)|(?:^|: )not (\w+)",
        "the argument {0} has another number of elements",
        "always pass the same number of elements, or pass one tensor instead",
        "argument changes",
    ),
    Row(
        r"(?:^|: )(\w+) == (\S+)",
        "the argument {0} was {1}, and is something else now",
        "pass it as a tensor, or accept one compilation for each value",
        "argument changes",
    ),
)


def in_words(rows: tuple[Row, ...], said: str) -> tuple[str, str]:
    """Return the reason and the advice of the first row that matches, or the compiler's own message and no advice."""
    row, groups = matched(rows, said)
    return (row.reason.format(*groups), row.advice.format(*groups)) if row else (_own_words(said), "")


def matched(rows: Sequence[Row], said: str) -> tuple[Row | None, tuple[str, ...]]:
    """Return the first row that matches and the groups of its pattern, or None and ()."""
    for row in rows:
        found = re.search(row.pattern, said)
        if found:
            return row, tuple(group for group in found.groups() if group is not None)
    return None, ()


def _own_words(said: str) -> str:
    """Return the kind of graph break and the compiler's explanation, in one line."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and len(lines) > 1:
        lines = lines[1:]
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    return f"{lines[0]}: {explained}" if explained else (lines[0] if lines else "the compiler gives no reason")
