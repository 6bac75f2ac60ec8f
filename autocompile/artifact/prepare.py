"""A training's recommendation, applied to the user's own model and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from autocompile.artifact.compiled_updates import CompiledUpdates
from autocompile.artifact.integrity import Opened, open_artifact
from autocompile.artifact.mismatch import Mismatch
from autocompile.artifact.options import Asked, OnMismatch, check_trained
from autocompile.artifact.prepared import How, PreparedStep
from autocompile.artifact.starting import compiles, start_of
from autocompile.artifact.step_forms import tuned_forms
from autocompile.artifact.training_fit import Fit, fit, other_figures, training_mismatches
from autocompile.core.caution import warn
from autocompile.core.errors import InvalidRecommendation, UsageError
from autocompile.core.manifest import Manifest
from autocompile.core.plan import EAGER, Plan
from autocompile.core.words import words_of
from autocompile.core.workload import TrainingEntry
from autocompile.heap import settle_heap
from autocompile.runtime.building import caching
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.runtime.recomputation import recompute
from autocompile.workload.training.compiled_step import COMPILED
from autocompile.workload.training.implementation import AsGiven, problem_of, put_on
from autocompile.workload.training.training import Loss, own_loss


def prepare(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer,
    *,
    loss: Loss | None = None,
    on_mismatch: OnMismatch = "fallback",
    digest: str | None = None,
) -> PreparedStep:
    """Train `model` with `optimizer` as the recommendation at `path` says: a step to be called with a batch.

    Nothing is replaced: parameters, optimizer and its groups stay the same objects, and their state stays. Applied to
    them are the plan's memory format and the optimizer's implementation; blocks that the plan compiles by themselves
    are compiled where they lie, and blocks whose activations are computed again do so from then on, whoever calls them.
    A step cuts its batches into the plan's micro-batches; one that cannot be cut is done whole. An optimizer that calls
    for the loss itself, as LBFGS does, goes on as it is; what the plan makes is the loss and the gradients. CPU
    threads, and on a CPU how glibc's heap keeps what is freed (`autocompile.heap`), are settings of the whole process,
    and are applied.

    Parameters: `model` and `optimizer`, as they were tuned. `loss`, a function of the model and a batch, which returns
    a scalar tensor; by default the `.loss` of the model's output. It has to be given where one was given when it was
    tuned. `on_mismatch`, what to do if the recommendation does not fit this model, optimizer or machine: train on with
    what fits of it, with a warning, or raise ("fallback", "error"). Another model trains eager, as it is given; so does
    one on another type of device. On another machine or torch the plan is applied, although it was not verified there.
    An optimizer without the plan's implementation keeps its own. One whose step is compiled keeps its settings and its
    state as they are, and takes a schedule of the learning rate; what else changes from step to step is done without
    the compiler, and told. Where compiling fails at the first step of a form,
    that step and all after it are done without the compiler. `digest`, "sha256:...", refuses any other recommendation.

    Raises InvalidRecommendation if there is none for training, or, with `on_mismatch="error"`, if it does not fit;
    InvalidArtifact if its files are not the ones that were written; InvalidWorkload if the optimizer is not one of the
    model's parameters; UsageError if the loss is missing.
    """
    asked = Asked(on_mismatch=on_mismatch, digest=digest)
    opened = open_artifact(Path(path), asked.digest)
    entry = check_trained(opened.manifest)
    _check_given(model, optimizer)
    given = _loss(entry, loss)
    found = training_mismatches(opened.manifest, model, optimizer)
    grave = [one for one in found if not one.is_only_noted]
    if grave and asked.on_mismatch == "error":
        raise InvalidRecommendation(grave[0].message, where=str(path), remedy=_remedy(grave[0]))
    fitting = fit(opened.manifest, found)
    if grave:
        warn(f"{grave[0].message}; {_consequence(fitting, grave[0])}; {_remedy(grave[0])}")
    told: list[str] = []
    _apply(opened.manifest, fitting.plan, model, optimizer, told.append)
    other = other_figures(entry, optimizer, own_loss=given is own_loss)
    batch = fitting.plan.batch
    other += [f"the figures are of batches of {batch} samples, which your loop has to bring"] if batch else []
    how = _how(opened, entry, given, fitting, [*other, *_starting(opened, fitting, entry)])
    return PreparedStep(model, optimizer, how, told)


def _how(opened: Opened, entry: TrainingEntry, loss: Loss, fitting: Fit, notes: list[str]) -> How:
    manifest, own = opened.manifest, kind_of(fitting.plan)
    return How(
        label=EAGER if fitting.plan == Plan() else manifest.label,
        plan=fitting.plan,
        serving=serving_of(fitting.plan) if _installed(opened, fitting) else own.unpacked,
        training=entry,
        loss=loss,
        device_type=manifest.device_type,
        forms=tuned_forms(manifest.signatures, fitting.plan.batch),
        fallback=fitting.fallback,
        notes=(*fitting.notes, *notes),
    )


def _carries_cache(manifest: Manifest, fitting: Fit) -> bool:
    """Whether the compiler's cache came with it, and was left by such a machine, torch and Python as these."""
    is_cache = fitting.plan.runtime == manifest.plan.runtime and kind_of(manifest.plan).packs_as == "cache"
    return bool(manifest.files) and is_cache and fitting.is_same_machine


def _installed(opened: Opened, fitting: Fit) -> bool:
    """Put the compiler's cache in place, where it came along and fits; whether it did."""
    if not _carries_cache(opened.manifest, fitting):
        return False
    caching(opened.manifest.plan.runtime).install_cache(opened.contents())
    return True


def _check_given(model: Any, optimizer: Any) -> None:
    if not isinstance(model, nn.Module):
        remedy = "give the torch.nn.Module that was tuned"
        raise UsageError(f"a {type(model).__name__} cannot be trained", where="model", remedy=remedy)
    if not isinstance(optimizer, Optimizer):
        remedy = "give a torch.optim.Optimizer of the model's parameters"
        raise UsageError(f"a {type(optimizer).__name__} is no optimizer", where="optimizer", remedy=remedy)


def _loss(entry: TrainingEntry, loss: Any) -> Loss:
    if loss is None and not entry.own_loss:
        remedy = "give loss=, the function of the model and a batch that it was tuned with"
        raise UsageError("the loss is missing", where="prepare", remedy=remedy)
    if loss is not None and not callable(loss):
        remedy = "give a function of the model and a batch"
        raise UsageError(f"a {type(loss).__name__} is no loss", where="loss", remedy=remedy)
    given: Loss = own_loss if loss is None else loss
    return given


def _apply(manifest: Manifest, plan: Plan, model: nn.Module, optimizer: Optimizer, told: Callable[[str], None]) -> None:
    """What of the plan changes the process, the model and the optimizer before the first step.

    `told` is given what comes of it later.
    """
    if manifest.device_type == "cpu":
        settle_heap()
    if plan.threads:
        torch.set_num_threads(plan.threads)
    as_given = AsGiven(optimizer)
    if plan.memory_format:
        model.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    recompute(model, plan.recomputed)
    _put_for_good(optimizer, plan, as_given, told)


def apply_to_optimizer(optimizer: Optimizer, model: nn.Module, plan: Plan, told: Callable[[str], None]) -> str:
    """Put another optimizer of a prepared model's on the plan's implementation; why that cannot be, or "".

    `told` is given what comes of it later. Raises InvalidWorkload where the optimizer holds others than the model's
    parameters.
    """
    name = plan.optimizer
    problem = problem_of(optimizer, dict(model.named_parameters()), name) if name else ""
    if not problem:
        _put_for_good(optimizer, plan, AsGiven(optimizer), told)
    return problem


def _put_for_good(optimizer: Optimizer, plan: Plan, as_given: AsGiven, told: Callable[[str], None]) -> None:
    """What is loaded later comes with the settings and the layout of where it was saved."""
    name = plan.optimizer
    put_on(optimizer, name)
    if name == COMPILED:
        CompiledUpdates(optimizer, plan.runtime, told)
    optimizer.register_load_state_dict_post_hook(lambda loaded: put_on(loaded, name))
    optimizer.register_state_dict_post_hook(lambda _optimizer, state: as_given.restored(state))


def _starting(opened: Opened, fitting: Fit, entry: TrainingEntry) -> list[str]:
    """What the first step waits for, where it does."""
    first = f"at the first {words_of(entry.kind).one}"
    manifest, own = opened.manifest, kind_of(fitting.plan)
    if not own.compiles:
        return []
    if _carries_cache(manifest, fitting):
        return [f"starts the compiler {first}, from the cache that came along"]
    return [compiles(start_of(manifest, own.unpacked), first)]


def _consequence(fitting: Fit, fault: Mismatch) -> str:
    if fitting.plan == Plan() and fitting.fallback:
        return "it is trained eager, as it is given"
    if fitting.fallback:
        return "it is trained without the compiler"
    if fault.name == "optimizer":
        return "the optimizer keeps its own implementation"
    return "it is trained as recommended, which was not verified here"


def _remedy(fault: Mismatch) -> str:
    return f"{fault.remedy}, or tune it again for what is here" if fault.remedy else "tune it again for what is here"
