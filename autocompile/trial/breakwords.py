"""The compiler's reasons in plain words, and what to write instead: one row for each common kind."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OUTSIDE = "call it outside of the model and pass its result in, or register it with torch.library.custom_op"
_GUARDED = "remove it, or put `if not torch.compiler.is_compiling():` before it"
_SCALARS = "set torch._dynamo.config.capture_scalar_outputs = True"
_SHAPES = "set torch._dynamo.config.capture_dynamic_output_shape_ops = True"


@dataclass(frozen=True)
class Row:
    """What the compiler's text has in it, what that means, and what helps; groups of the pattern fill both."""

    pattern: str
    reason: str
    advice: str


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

RECOMPILES = (
    Row(
        r"tensor '([^']+)' size mismatch at index (\d+)\. expected (\d+), actual (\d+)",
        "{0} has another size in axis {1}: {2}, then {3}",
        "let that axis vary: torch._dynamo.mark_dynamic({0}, {1}) before the first call, or compile with dynamic=True",
    ),
    Row(
        r"tensor '([^']+)' stride mismatch at index (\d+)",
        "{0} is laid out otherwise in memory",
        "call .contiguous() on it before the model",
    ),
    Row(
        r"tensor '([^']+)' dtype mismatch\. expected (\S+), actual (\S+?)\.?$",
        "{0} has another dtype: {1}, then {2}",
        "convert it to one dtype before the model",
    ),
    Row(
        r"tensor '([^']+)' (?:rank|dim\w*) mismatch\. expected (\d+), actual (\d+)",
        "{0} has another number of axes: {1}, then {2}",
        "reshape it before the model, so that all calls are alike",
    ),
    Row(
        r"tensor '([^']+)' requires_grad mismatch",
        "{0} asks for gradients in some calls and not in others",
        "detach it, or call the model under torch.no_grad() always",
    ),
    Row(
        r"L\['(\w+)'\] == (\S+)",
        "the argument {0} was {1}, and is something else now",
        "pass it as a tensor, or compile once for each value on purpose",
    ),
    Row(
        r"GLOBAL_STATE|grad_mode|___check_global_state",
        "a global setting of torch has changed (grad mode, autocast, threads, determinism)",
        "set it once, before the first call",
    ),
)


def in_words(rows: tuple[Row, ...], said: str) -> tuple[str, str]:
    """The reason and the advice of the first row that fits; else what the compiler itself says, and no advice."""
    for row in rows:
        found = re.search(row.pattern, said)
        if found:
            return row.reason.format(*found.groups()), row.advice.format(*found.groups())
    return _own_words(said), ""


def _own_words(said: str) -> str:
    """The kind of break and the compiler's explanation, in one line."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and len(lines) > 1:
        lines = lines[1:]
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    return f"{lines[0]}: {explained}" if explained else (lines[0] if lines else "no reason is given")
