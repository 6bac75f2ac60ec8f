"""Warnings point to the line outside this package that caused them."""

import functools
import inspect
import warnings

import pytest

from autocompile.core import caution


def of_the_package(code):
    """What this code defines as `call`, as if it lay in the package."""
    scope = {}
    exec(compile(code, caution.__file__.replace("core/caution", "artifact/load"), "exec"), scope)
    return scope["call"]


SHALLOW = "from autocompile.core.caution import warn\ndef call(said='careful'): warn(said)"
DEEP = "from autocompile.core.caution import warn\ndef inner(): warn('careful')\ndef call(): [inner() for _ in (1,)]"


@pytest.mark.parametrize("code", [SHALLOW, DEEP])
def test_from_any_depth_it_is_the_callers_line(code):
    call = of_the_package(code)
    here = inspect.currentframe().f_lineno + 2
    with pytest.warns(RuntimeWarning, match="careful") as warned:
        call()
    assert [(one.filename, one.lineno) for one in warned] == [(__file__, here)]


def test_through_a_property_that_is_kept():
    call = of_the_package(SHALLOW)

    class Holder:
        module = functools.cached_property(lambda self: call())

    with pytest.warns(RuntimeWarning, match="careful") as warned:
        Holder().module  # noqa: B018
    assert [one.filename for one in warned] == [__file__]


def test_the_same_line_is_said_once():
    call = of_the_package(SHALLOW)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            call("said once")
    assert len(seen) == 1
