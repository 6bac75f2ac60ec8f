"""The argument in which a transformers model takes its cache of keys and values.

transformers 5.24 renamed it from `past_key_values` to `cache`, in calls, outputs and `generate`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import nn

CACHE_NAMES = ("cache", "past_key_values")


def cache_in(arguments: Mapping[str, Any]) -> Any:
    """Return the cache among the arguments of a call, or None."""
    return arguments.get(cache_name_in(arguments))


def cache_name_in(arguments: Mapping[str, Any]) -> str:
    """Return the name under which a call has its cache, or "" if it has none."""
    return next((name for name in CACHE_NAMES if arguments.get(name) is not None), "")


def cache_argument(model: nn.Module) -> str:
    """Return the name of the argument in which `model` takes its cache."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in CACHE_NAMES if name in parameters), CACHE_NAMES[-1])


def cache_field(output: type) -> str:
    """Return the field in which a transformers output record has its cache."""
    own = {one.name for one in fields(output)}
    return next(name for name in CACHE_NAMES if name in own)
