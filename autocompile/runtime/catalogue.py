"""All runtimes, and all dimensions that there are with them: the one list of each. No torch.

A runtime is a folder beside this file with a `KIND`; one of another distribution is found by the entry point group
`autocompile.runtimes`, whose entries are Kinds (`distributions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.errors import InvalidValue
from autocompile.core.plan import EAGER, Plan
from autocompile.core.serving import Serving
from autocompile.runtime.aot.kind import KIND as AOT
from autocompile.runtime.distributions import OURS, found
from autocompile.runtime.eager.kind import KIND as EAGER_KIND
from autocompile.runtime.inductor.kind import KIND as INDUCTOR
from autocompile.runtime.kind import Kind
from autocompile.space.dimension import Choice, Dimension
from autocompile.space.dimensions import SHARED
from autocompile.space.space import Space
from autocompile.space.surroundings import Surroundings

_OWN: dict[str, Kind] = {kind.name: kind for kind in (EAGER_KIND, INDUCTOR, AOT)}


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


def kind_of(plan: Plan) -> Kind:
    """The runtime of a plan."""
    return kind(plan.runtime)


def servings_of(plan: Plan) -> tuple[Serving, ...]:
    """How a plan can be packed, the best first; none where there is nothing to pack.

    Who packs plans of others starts their programs without what the plan's own runtime needs, so it comes first.
    """
    others = (other for other in kinds() if other.name != plan.runtime and other.packs(plan) is not None)
    return tuple(Serving(packer.name, packer.packs_as) for packer in (*others, kind_of(plan)) if packer.packs_as)


def packed_plan(plan: Plan, serving: Serving) -> Plan:
    """The plan that is packed where `plan` is to serve so: itself, or what the packing runtime makes of it."""
    if serving.runtime == plan.runtime:
        return plan
    own = kind(serving.runtime).packs(plan)
    assert own is not None, f"{serving.runtime} does not pack plans of {plan.runtime}"
    return own


def candidates() -> tuple[Kind, ...]:
    """The runtimes that are searched over, eager first."""
    return tuple(kind for kind in kinds() if kind.is_candidate)


def plain() -> Kind:
    """The runtime that does what `torch.compile(model)` does."""
    return next(kind for kind in kinds() if kind.is_plain_compile)


def problem_here(kind: Kind, around: Surroundings) -> str:
    """Why a runtime cannot be tried here and what to do, or ""."""
    unverifiable = "" if kind.name == EAGER else around.unverifiable
    return dict(around.missing).get(kind.name) or kind.problem(around) or unverifiable


RUNTIME = Dimension(
    name="runtime",
    meaning="what runs the model",
    choices=lambda around: tuple(Choice(kind.name, problem_here(kind, around)) for kind in candidates()),
    fold=lambda plan, value, _around: replace(plan, runtime=str(value)),
)


@cache
def dimensions() -> tuple[Dimension, ...]:
    """All of them, in the order in which values are chosen and folded. Raises InvalidValue where two have one name."""
    own = _owned(candidates())
    ordered = [RUNTIME, *(dimension for dimension in own if not dimension.after), *SHARED]
    for follower in (dimension for dimension in own if dimension.after):
        place = next(i for i, dimension in enumerate(ordered, 1) if dimension.name == follower.after)
        ordered.insert(place, follower)
    return tuple(ordered)


def _owned(candidates: Iterable[Kind]) -> list[Dimension]:
    """The runtimes' own dimensions. Values are kept by a dimension's name alone, so no two may have one."""
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
    anywhere = Surroundings(device_type="cpu", cores=2, is_module=True, has_conv=True, signature_count=2)
    dimension = next(dimension for dimension in dimensions() if dimension.name == name)
    return tuple(choice.value for choice in dimension.choices(anywhere))


# Every runtime is tried, unless a strategy says outright which it wants; batches are the goal's.
_ALWAYS_OPEN = ("runtime", "batch")


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
    """The dimensions of runtimes that whoever wrote `allowed` need not have known; plain `torch.compile` he did."""
    for kind in candidates() if allowed.get("runtime") == () else ():
        own = [dimension.name for dimension in kind.dimensions]
        if not kind.is_plain_compile and not any(name in allowed for name in own):
            yield from own


def _open(choices: Iterable[Choice], wanted: tuple[Value, ...]) -> tuple[Value, ...]:
    """The default, and what is possible and wanted."""
    return tuple(
        choice.value
        for position, choice in enumerate(choices)
        if position == 0 or (not choice.unavailable and (not wanted or choice.value in wanted))
    )
