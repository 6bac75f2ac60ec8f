"""Names options in error messages as the command line has them, where the code has names of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_ARGUMENT = re.compile(
    r"(?:\bthe )?\b(calls|horizon|processes|objective|percentile|max_latency|max_startup|max_memory|batch)\b"
)
# What an error names as its place if it concerns several arguments.
_SEVERAL = "goal"


@contextmanager
def named_as_options() -> Iterator[None]:
    """Raise an InvalidValue of a goal again, with the names of options in place of those of arguments."""
    from autocompile.core.errors import InvalidValue

    try:
        yield
    except InvalidValue as fault:
        of_several = fault.where == _SEVERAL
        said = _as_options(fault.fault) if of_several else fault.fault
        raise InvalidValue(
            said, where="" if of_several else _option(fault.where), remedy=_as_options(fault.remedy)
        ) from fault


def _as_options(text: str) -> str:
    return _ARGUMENT.sub(lambda found: _option(found[1]), text)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
