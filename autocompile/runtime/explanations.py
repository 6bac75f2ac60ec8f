"""The compiler's reasons in plain words, and what to write instead: one row for each common kind."""

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
    """What the compiler's text has in it, what that means, and what helps; groups of the pattern fill both.

    `cause` is what else fails for it, where that is known.
    """

    pattern: str
    reason: str
    advice: str
    cause: FailureCause = ""


# The first row that fits counts: the special ones before the general.
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
        "a Python branch (if, while, and, or) asks for the value of a tensor",
        "compute both and choose: torch.where(condition, a, b); or torch.cond where only one may run",
    ),
    Row(
        r"Data-dependent assertion|Assertion failed on symbolic",
        "an assert asks for the value of a tensor",
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
        "keep it a tensor, and index or stack where the list was used",
    ),
    Row(
        r"Dynamic shape operator|capture_dynamic_output_shape_ops",
        "the size of a result depends on the values of a tensor (x[mask], nonzero, unique)",
        f"keep the size: torch.where(mask, x, 0), or multiply by the mask; or {_SHAPES}",
    ),
    Row(
        r"torch\._dynamo\.graph_break\(\)",
        "torch._dynamo.graph_break() asks for it",
        "remove that call",
    ),
    Row(
        r"torch\.compiler\.disable",
        "a function is kept out of compiling by torch.compiler.disable",
        "remove the decorator if it is not needed any more, or call the function outside of the model",
    ),
    Row(
        r"Unsupported context manager[\s\S]*?enter a `(\w+)`",
        "the compiler cannot enter a {0} in a with statement",
        "enter it outside of the model",
    ),
    Row(
        r"method `(\w+)` of class `(\w+)`",
        "{1}.{0}() is Python that the compiler cannot trace",
        _OUTSIDE,
    ),
    Row(
        r"builtin operator `(\w+)`",
        "{0}() is Python that the compiler cannot trace",
        _OUTSIDE,
    ),
    Row(
        r"module: ([\w.]+), qualname: ([\w.<>]+)",
        "{0}.{1}() is not traced by the compiler",
        _OUTSIDE,
    ),
    Row(
        r"graph break in loop|graph break in a for/while loop",
        "something in a loop breaks the graph, so the whole function is left to Python",
        "move what breaks out of the loop",
    ),
    Row(
        r"Observed exception",
        "an exception is raised on the way",
        "test for the condition in place of raising and catching",
    ),
    Row(
        r"backward hook|register_hook|Tensor hook",
        "a hook on a tensor or module has to run in Python",
        "remove it before compiling",
    ),
)

# What the exporter says of a model that it does not take.
EXPORTS = (
    Row(
        r"GuardOnDataDependentSymNode|data-dependent expression",
        "what it does next depends on the values of a tensor (a branch, .item(), or a size)",
        "compute both and choose with torch.where",
    ),
    Row(
        r"\.numpy\(\) is not supported",
        "a tensor goes through numpy",
        "use torch's functions in its place",
    ),
    Row(
        r"your code specialized it to be a constant \((\d+)\)",
        "its code takes a size that is to vary as {0}",
        "ask for the size in forward (x.shape) in place of writing it down",
    ),
    Row(
        r"Not all values of \w+ = [\s\S]*?satisfy the generated guard",
        "it does something else for certain sizes",
        "do not branch on a size in forward",
    ),
)

# An attribute, of the model or of what it holds: `self.calls`, `self.layers[0].seen`, `self.options['k']`.
_ATTRIBUTE = r"([A-Za-z_]\w*(?:\[[^\]]*\])*(?:\.[A-Za-z_]\w*(?:\[[^\]]*\])*)+)"
_KEEP_STILL = "make it a tensor (register_buffer), or do not change it in forward"

# To be read after `runtime.recompiled.legible`.
RECOMPILES = (
    Row(
        r"GLOBAL_STATE|grad_mode|___check_global_state",
        "a global setting of torch has changed (grad mode, autocast, threads, determinism)",
        "set it once, before the first call",
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
        "{0} has another size in axis {1}, and the program holds for certain sizes only",
        "do not branch on that size in forward; a size of 1 is always another program",
        "size changes",
    ),
    Row(
        r"tensor '(.+?)' stride mismatch at index (\d+)",
        "{0} is laid out otherwise in memory",
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
        "reshape it before the model, so that all calls are alike",
        "argument changes",
    ),
    Row(
        r"tensor '(.+?)' requires_grad mismatch",
        "{0} asks for gradients in some calls and not in others",
        "detach it, or call the model under torch.no_grad() always",
        "argument changes",
    ),
    Row(
        r"tensor '(.+?)' dispatch key set mismatch",
        "{0} was made in another mode, such as torch.inference_mode",
        "make and use it in one mode",
        "argument changes",
    ),
    Row(
        r"expected type of '([^']+)'|___check_type_id\((\w+),",
        "the argument {0} is of another type",
        "pass it as one type always",
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
        "`{0}` has another length from call to call",
        "do not collect in forward: return what is to be kept",
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
        "give it as many always, or one tensor in its place",
        "argument changes",
    ),
    Row(
        r"(?:^|: )(\w+) == (\S+)",
        "the argument {0} was {1}, and is something else now",
        "pass it as a tensor, or compile once for each value on purpose",
        "argument changes",
    ),
)


def in_words(rows: tuple[Row, ...], said: str) -> tuple[str, str]:
    """The reason and the advice of the first row that fits; else what the compiler itself says, and no advice."""
    row, groups = matched(rows, said)
    return (row.reason.format(*groups), row.advice.format(*groups)) if row else (_own_words(said), "")


def matched(rows: Sequence[Row], said: str) -> tuple[Row | None, tuple[str, ...]]:
    """The first row that fits, and what its pattern found, or None."""
    for row in rows:
        found = re.search(row.pattern, said)
        if found:
            return row, tuple(group for group in found.groups() if group is not None)
    return None, ()


def _own_words(said: str) -> str:
    """The kind of break and the compiler's explanation, in one line."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and len(lines) > 1:
        lines = lines[1:]
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    return f"{lines[0]}: {explained}" if explained else (lines[0] if lines else "no reason is given")
