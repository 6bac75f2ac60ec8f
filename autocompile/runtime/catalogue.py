"""All runtimes, and all dimensions that there are with them: the one list of each. No torch.

A runtime is a folder beside this file with a `KIND`; one of another distribution is found by the entry point group
`autocompile.runtimes`, whose entries are Kinds (`distributions.py`).
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
    """Every runtime, eager first. Raises InvalidValue where two have one name."""
    return (*_OWN.values(), *_of_others().values())


def broken() -> tuple[str, ...]:
    """What other distributions bring and cannot be used, with why."""
    return found(tuple(_OWN)).broken


def _of_others() -> dict[str, Kind]:
    """Those that other distributions bring."""
    return {name: one.kind for name, one in found(tuple(_OWN)).brought.items()}


def _owner(kind: Kind) -> str:
    """A runtime and its distribution, as a fault names them."""
    brought = found(tuple(_OWN)).brought.get(kind.name)
    return f"runtime {kind.name} of {brought.distribution if brought else OURS}"


def kind(name: str) -> Kind:
    """The runtime of this name. Raises InvalidValue if there is none, as where its distribution is not installed."""
    known = _OWN.get(name) or _of_others().get(name)
    if known is None:
        names = ", ".join(one.name for one in kinds())
        raise InvalidValue(f"there is no runtime {name!r}", where="runtime", remedy=f"install it; here are {names}")
    return known


def formats() -> dict[str, tuple[Kind, Format]]:
    """The files that a model can be exported as, by name, each with the first runtime that writes it."""
    found: dict[str, tuple[Kind, Format]] = {}
    for one in kinds():
        for form in one.formats:
            found.setdefault(form.name, (one, form))
    return found


def format_named(name: str) -> tuple[Kind, Format]:
    """The format of this name, and the runtime that writes it. Raises InvalidValue if there is none."""
    known = formats().get(name)
    if known is None:
        raise InvalidValue(f"there is no format {name!r}", where="format", remedy=f"give one of {', '.join(formats())}")
    return known


def kind_of(plan: Plan) -> Kind:
    """The runtime of a plan."""
    return kind(plan.runtime)


def serving_of(plan: Plan) -> Serving:
    """How an artifact of this plan starts."""
    own = kind_of(plan)
    return Serving(own.name, own.packs_as) if own.packs_as else own.unpacked


def on_live_weights(plan: Plan) -> Plan | None:
    """A plan that does what this one does and follows the model's weights, of the first runtime that has one."""
    return next((live for kind in kinds() if (live := kind.on_live_weights(plan)) is not None), None)


def in_process(plan: Plan) -> Plan:
    """A plan that needs nothing that was packed: itself, or `torch.compile` in the same precision, if it is loaded."""
    if kind_of(plan).packs_as != "load":
        return plan
    return replace(plan, runtime=plain().name, settings={}, memory_format="", sizes="")


def plain() -> Kind:
    """The runtime that does what `torch.compile(model)` does."""
    return next(kind for kind in kinds() if kind.is_plain_compile)


_OTHER_NUMBERS = (
    "the model draws random numbers, and what this runtime makes of it is not built to draw the same ones, so it "
    "cannot be compared; call model.eval() if dropout is why"
)


def problem_here(kind: Kind, around: Surroundings) -> str:
    """Why a runtime cannot be tried here and what to do, or ""."""
    if around.training is not None and not kind.trains:
        return "it runs a model and does not train it"
    unverifiable = "" if kind.name == EAGER else around.unverifiable
    if kind.packs_as == "load" and not around.loads_artifacts:
        return "it is loaded from an artifact, which a goal that deploys 'jit' has none of"
    if around.draws and not kind.draws_as_eager:
        unverifiable = unverifiable or _OTHER_NUMBERS
    return dict(around.missing).get(kind.name) or kind.problem(around) or unverifiable


def _conflict(values: Values, around: Surroundings) -> str:
    own = kind(str(values["runtime"]))
    if values["optimizer"] == "compiled" and not own.compiles_updates:
        return "it compiles no optimizer's step; scope=optimizer of torch.compile compiles that alone"
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
    """All of them, in the order in which values are chosen and folded. Raises InvalidValue where two have one name."""
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
    """The same dimension, which applies to those runtimes only that it is one of."""
    names = {one.name for one in kinds() if of(one, dimension)}
    applies = dimension.applies
    return dataclasses.replace(dimension, applies=lambda values: values["runtime"] in names and applies(values))


def _owned(candidates: Iterable[Kind]) -> list[Dimension]:
    """The runtimes' own dimensions. Values are kept by a dimension's name alone, so no two may have one.

    One that several runtimes have is one object.
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
    """All values that a dimension can take, wherever it runs."""
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


# Every runtime is tried, unless a strategy says outright which it wants; batches are the goal's; only what is trained
# has an optimizer, and activations to save.
_ALWAYS_OPEN = ("runtime", "batch", "optimizer", "activations", "micro_batches", "memory_budget")


def open_space(around: Surroundings, allowed: Mapping[str, tuple[Value, ...]]) -> tuple[Space, list[tuple[str, str]]]:
    """The space here, and what was left out with its reason.

    `allowed` narrows: a dimension that is missing stays at its default, () opens all its values. Where it opens all
    runtimes, those of a runtime of which it names none are open, too.
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
    """The dimensions that whoever wrote `allowed` need not have known, as plain `torch.compile` has none of them."""
    for kind in kinds() if allowed.get("runtime") == () else ():
        own = [dimension.name for dimension in kind.dimensions if dimension not in plain().dimensions]
        if not any(name in allowed for name in own):
            yield from own


def _open(choices: Iterable[Choice], wanted: tuple[Value, ...]) -> tuple[Value, ...]:
    """The default, and what is possible and wanted."""
    return tuple(
        choice.value
        for position, choice in enumerate(choices)
        if position == 0 or (not choice.unavailable and (not wanted or choice.value in wanted))
    )
