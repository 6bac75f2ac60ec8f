"""How far from the float64 reference an output may be.

The rule is the PyTorch benchmark suite's (`benchmarks/dynamo`, `torch._dynamo.utils.same`): pass if
`rmse(candidate) <= multiple * rmse(baseline) + tolerance / 10`, with a larger multiple for reduced
precision and for small outputs. It is stated here relative to the reference's own root mean square.
A mean hides a single bad element among many, so each element has a bound of its own as well.
"""

from __future__ import annotations

from autocompile.core.serde import Record


class Tolerance(Record, frozen=True):
    """Limits relative to the reference: `rmse` of the whole output, `element` of any one element.

    An element passes if its error is at most `element * (rms(reference) + |reference|)`; both limits
    are widened by `multiple` times what the baseline itself is off. `epsilon` is the spacing of numbers near 1 in a
    reduced precision, 0 for the model's own.
    """

    rmse: float
    element: float
    multiple: float
    epsilon: float = 0.0


_BY_PRECISION = {
    "": Tolerance(rmse=1e-5, element=1e-3, multiple=2.0),
    # Its mantissa is as long as float16's.
    "tf32": Tolerance(rmse=2e-3, element=3e-2, multiple=3.0, epsilon=2**-10),
    "float16": Tolerance(rmse=2e-3, element=3e-2, multiple=3.0, epsilon=2**-10),
    "bfloat16": Tolerance(rmse=1e-2, element=1e-1, multiple=3.0, epsilon=2**-7),
}


def published_tolerance(precision: str) -> Tolerance:
    """The limits for a plan's precision; "" is the model's own."""
    return _BY_PRECISION[precision]


def multiple_for(tolerance: Tolerance, elements: int) -> float:
    """The multiple of the baseline's error that an output of so many elements may have.

    Small outputs average little, so their error scatters more: up to 10 below 11 elements, 3 up to
    500, as the benchmark suite has it.
    """
    if tolerance.multiple == 0:
        return 0.0
    if elements <= 10:
        return max(tolerance.multiple, 10.0)
    return max(tolerance.multiple, 3.0) if elements <= 500 else tolerance.multiple


def exactly(rmse: float) -> Tolerance:
    """A user's own limit: this and nothing for what the baseline is off; an element may be off ten times as much."""
    return Tolerance(rmse=rmse, element=10 * rmse, multiple=0.0)
