"""The complete lists of runtimes and of dimensions. Does not import torch.

A runtime is a folder next to this file that has a `KIND`. Runtimes of other distributions are found by the entry point
group `autocompile.runtimes`, whose entries are Kinds (`distributions.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.errors import InvalidValue
from autocompile.core.plan import EAGER, Plan
from autocompile.core.serving import Serving
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.aot.kind import KIND as AOT
from autocompile.runtime.distributions import OURS, found
from autocompile.runtime.eager.kind import KIND as EAGER_KIND
from autocompile.runtime.format import Format
from autocompile.runtime.inductor.kind import KIND as INDUCTOR
from autocompile.runtime.kind import Kind
from autocompile.runtime.onnxruntime.kind import KIND as ONNX_RUNTIME
from autocompile.runtime.openvino.kind import KIND as OPENVINO
from autocompile.space.dimension import Choice, Dimension, Values
from autocompile.space.dimensions import SHARED
from autocompile.space.space import Space
from autocompile.space.surroundings import Surroundings

_OWN: dict[str, Kind] = {kind.name: kind for kind in (EAGER_KIND, INDUCTOR, AOT, OPENVINO, ONNX_RUNTIME)}


@cache
def kinds() -> tuple[Kind, ...]:
    """Return all runtimes, eager first. Raises InvalidValue if two have the same name."""
    return (*_OWN.values(), *_of_others().values())


def broken() -> tuple[str, ...]:
    """Return the runtimes of other distributions that cannot be used, each with the reason."""
    return found(tuple(_OWN)).broken


def _of_others() -> dict[str, Kind]:
    """Return the runtimes that other distributions provide."""
    return {name: one.kind for name, one in found(tuple(_OWN)).brought.items()}


def _owner(kind: Kind) -> str:
    """Name a runtime and its distribution for an error message."""
    brought = found(tuple(_OWN)).brought.get(kind.name)
    return f"runtime {kind.name} of {brought.distribution if brought else OURS}"


def kind(name: str) -> Kind:
    """Return the runtime of this name. Raises InvalidValue if there is none, for example if it is not installed."""
    known = _OWN.get(name) or _of_others().get(name)
    if known is None:
        names = ", ".join(one.name for one in kinds())
        raise InvalidValue(f"there is no runtime {name!r}", where="runtime", remedy=f"install it, or use {names}")
    return known


def formats() -> dict[str, tuple[Kind, Format]]:
    """Return the formats that a model can be exported to, by name, each with the first runtime that writes it."""
    found: dict[str, tuple[Kind, Format]] = {}
    for one in kinds():
        for form in one.formats:
            found.setdefault(form.name, (one, form))
    return found


def format_named(name: str) -> tuple[Kind, Format]:
    """Return the format of this name and the runtime that writes it. Raises InvalidValue if there is none."""
    known = formats().get(name)
    if known is None:
        raise InvalidValue(f"there is no format {name!r}", where="format", remedy=f"give one of {', '.join(formats())}")
    return known


def kind_of(plan: Plan) -> Kind:
    """Return the runtime of a plan."""
    return kind(plan.runtime)


def serving_of(plan: Plan) -> Serving:
    """Return how an artifact of this plan starts."""
    own = kind_of(plan)
    return Serving(own.name, own.packs_as) if own.packs_as else own.unpacked


def on_live_weights(plan: Plan) -> Plan | None:
    """Return an equivalent plan that follows changes of the model's weights, from the first runtime that has one."""
    return next((live for kind in kinds() if (live := kind.on_live_weights(plan)) is not None), None)


def in_process(plan: Plan) -> Plan:
    """Return a plan that needs no packed files: the plan itself, or `torch.compile` with the same precision."""
    if kind_of(plan).packs_as != "load":
        return plan
    return replace(plan, runtime=plain().name, settings={}, memory_format="", sizes="")


def plain() -> Kind:
    """Return the runtime that does the same as `torch.compile(model)`."""
    return next(kind for kind in kinds() if kind.is_plain_compile)


_OTHER_NUMBERS = (
    "the model draws random numbers, and this runtime cannot be made to draw the same ones as eager, so its outputs "
    "cannot be compared; call model.eval() if the cause is dropout"
)


def problem_here(kind: Kind, around: Surroundings) -> str:
    """Return why a runtime cannot be tried here and what to do about it, or ""."""
    if around.training is not None and not kind.trains:
        return "it runs a model and does not train it"
    unverifiable = "" if kind.name == EAGER else around.unverifiable
    if kind.packs_as == "load" and not around.loads_artifacts:
        return "it is loaded from an artifact, and a goal that deploys 'jit' has no artifact"
    if around.draws and not kind.draws_as_eager:
        unverifiable = unverifiable or _OTHER_NUMBERS
    unpackable = around.unpackable if kind.packs_as == "load" else ""
    return dict(around.missing).get(kind.name) or kind.problem(around) or unverifiable or unpackable


def installs_for(around: Surroundings) -> dict[str, str]:
    """Return the install command of each runtime that would be tried here if its library were installed."""
    missing, complete = dict(around.missing), dataclasses.replace(around, missing=())
    lacking = [one for one in kinds() if one.name in missing and one.extra]
    return {one.name: one.install for one in lacking if not problem_here(one, complete)}


def _conflict(values: Values, around: Surroundings) -> str:
    own = kind(str(values["runtime"]))
    if values["optimizer"] == "compiled" and not own.compiles_updates:
        return "it cannot compile an optimizer's step; torch.compile with scope=optimizer compiles only that step"
    return own.conflict(values, around)


RUNTIME = Dimension(
    name="runtime",
    meaning="what runs the model",
    choices=lambda around: tuple(Choice(kind.name, problem_here(kind, around)) for kind in kinds()),
    fold=lambda plan, value, around: replace(plan, runtime=str(value), settings=kind(str(value)).settings(around)),
    conflict=_conflict,
)


@cache
def dimensions() -> tuple[Dimension, ...]:
    """Return all dimensions, in the order in which values are chosen and folded into a plan.

    Raises InvalidValue if two have the same name.
    """
    own = [_where(one, _has_it) for one in _owned(kinds())]
    shared = [_where(one, _takes_it) for one in SHARED]
    ordered = [RUNTIME, *(dimension for dimension in own if not dimension.after), *shared]
    for follower in (dimension for dimension in own if dimension.after):
        place = next(i for i, dimension in enumerate(ordered, 1) if dimension.name == follower.after)
        ordered.insert(place, follower)
    return tuple(ordered)


def _has_it(kind: Kind, dimension: Dimension) -> bool:
    return dimension in kind.dimensions


def _takes_it(kind: Kind, dimension: Dimension) -> bool:
    return dimension.name in kind.takes


def _where(dimension: Dimension, of: Callable[[Kind, Dimension], bool]) -> Dimension:
    """Return a copy of the dimension that applies only to the runtimes for which `of` is true."""
    names = {one.name for one in kinds() if of(one, dimension)}
    applies = dimension.applies
    return dataclasses.replace(dimension, applies=lambda values: values["runtime"] in names and applies(values))


def _owned(candidates: Iterable[Kind]) -> list[Dimension]:
    """Return the dimensions that belong to runtimes.

    Values are stored by the dimension's name alone, so no two dimensions may have the same name. A dimension that
    several runtimes share is one object.
    """
    owners = {dimension.name: (dimension, OURS) for dimension in (RUNTIME, *SHARED)}
    shared = len(owners)
    for one in candidates:
        for dimension in one.dimensions:
            known, owner = owners.setdefault(dimension.name, (dimension, _owner(one)))
            if known is not dimension:
                raise InvalidValue(
                    f"there are two dimensions {dimension.name!r}: of {owner} and of {_owner(one)}",
                    where="dimension",
                    remedy="uninstall one of them",
                )
    return [dimension for dimension, _owner_of in list(owners.values())[shared:]]


def known_values(name: str) -> tuple[Value, ...]:
    """Return all values that a dimension can take on any device."""
    everywhere = [
        Surroundings(
            device_type=device_type,
            cores=2,
            is_module=True,
            has_conv=True,
            signature_count=2,
            training=TrainingEntry("AdamW"),
        )
        for device_type in ("cpu", "cuda")
    ]
    dimension = next(dimension for dimension in dimensions() if dimension.name == name)
    return tuple(dict.fromkeys(choice.value for around in everywhere for choice in dimension.choices(around)))


# Every runtime is tried, unless a strategy names those it wants. The goal decides on batches. Only models in training
# have an optimizer, activations to save, and gradients that the layout of convolutions can make wrong.
_ALWAYS_OPEN = ("runtime", "batch", "optimizer", "activations", "micro_batches", "memory_budget", "layout_optimization")


def open_space(around: Surroundings, allowed: Mapping[str, tuple[Value, ...]]) -> tuple[Space, list[tuple[str, str]]]:
    """Return the search space here, and the values that were left out, each with the reason.

    `allowed` narrows the space. A dimension that it does not contain stays at its default; () opens all values of the
    dimension. If `allowed` opens all runtimes, then the dimensions of each runtime of which it names none are open,
    too.
    """
    named = {*allowed, *_ALWAYS_OPEN, *_unheard_of(allowed)}
    open_values: dict[str, tuple[Value, ...]] = {}
    left_out: list[tuple[str, str]] = []
    for dimension in dimensions():
        choices = dimension.choices(around)
        if dimension.name not in named:
            open_values[dimension.name] = (choices[0].value,)
            continue
        open_values[dimension.name] = _open(choices, allowed.get(dimension.name, ()))
        left_out += [(f"{dimension.name}={c.value}", c.unavailable) for c in choices if c.unavailable]
    return Space(around, open_values, dimensions(), baseline_runtime=EAGER, plain_runtime=plain().name), left_out


def _unheard_of(allowed: Mapping[str, tuple[Value, ...]]) -> Iterator[str]:
    """Yield dimensions that the author of `allowed` may not know, because plain `torch.compile` does not have them."""
    for kind in kinds() if allowed.get("runtime") == () else ():
        own = [dimension.name for dimension in kind.dimensions if dimension not in plain().dimensions]
        if not any(name in allowed for name in own):
            yield from own


def _open(choices: Iterable[Choice], wanted: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the default, and the values that are both available and wanted."""
    return tuple(
        choice.value
        for position, choice in enumerate(choices)
        if position == 0 or (not choice.unavailable and (not wanted or choice.value in wanted))
    )
