"""How far an output may be from the float64 reference.

The rule is that of the PyTorch benchmark suite (`benchmarks/dynamo`, `torch._dynamo.utils.same`): an output passes if
`rmse(candidate) <= multiple * rmse(baseline) + tolerance / 10`, with a larger multiple for reduced precision and for
small outputs. Here it is stated relative to the reference's root mean square. Because a mean can hide a single bad
element among many, each element has its own limit as well.
"""

from __future__ import annotations

from autocompile.core.serde import Record


class Tolerance(Record, frozen=True):
    """Limits relative to the reference: `rmse` of the whole output, `element` of any one element.

    An element passes if its error is at most `element * (rms(reference) + |reference|)`. Both limits are widened by
    `multiple` times the error of the baseline. `epsilon` is the spacing of numbers near 1 in a reduced precision; 0 for
    the model's own.
    """

    rmse: float
    element: float
    multiple: float
    epsilon: float = 0.0


_BY_PRECISION = {
    "": Tolerance(rmse=1e-5, element=1e-3, multiple=2.0),
    # TF32 has as many mantissa bits as float16.
    "tf32": Tolerance(rmse=2e-3, element=3e-2, multiple=3.0, epsilon=2**-10),
    "float16": Tolerance(rmse=2e-3, element=3e-2, multiple=3.0, epsilon=2**-10),
    "bfloat16": Tolerance(rmse=1e-2, element=1e-1, multiple=3.0, epsilon=2**-7),
}


def published_tolerance(precision: str) -> Tolerance:
    """Return the limits for a plan's precision; "" is the model's own."""
    return _BY_PRECISION[precision]


def multiple_for(tolerance: Tolerance, elements: int) -> float:
    """Return the multiple of the baseline's error that an output with this number of elements may have.

    The mean over a small output averages less, so its error scatters more. As in the benchmark suite, the multiple is
    at least 10 for up to 10 elements, and at least 3 for up to 500.
    """
    if tolerance.multiple == 0:
        return 0.0
    if elements <= 10:
        return max(tolerance.multiple, 10.0)
    return max(tolerance.multiple, 3.0) if elements <= 500 else tolerance.multiple


def exactly(rmse: float) -> Tolerance:
    """Return limits for the user's own tolerance: not widened by the baseline's error, and 10 times for one element."""
    return Tolerance(rmse=rmse, element=10 * rmse, multiple=0.0)
