"""`autocompile.prepare`: applies a recommendation for training to the user's own model and optimizer."""

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
    """Load the recommendation at `path`, and return a training step for `model` and `optimizer`, called with a batch.

    The model and the optimizer are changed in place: parameters, optimizer and parameter groups stay the same objects,
    and keep their state. The plan's memory format and its implementation of the optimizer are applied to them. Blocks
    that the plan compiles one by one are compiled in place. Blocks whose activations are recomputed in the backward
    pass do so from then on, in every call of the model.

    Each batch is cut into the plan's micro-batches; a batch that cannot be cut is used whole. An optimizer that calls a
    closure for the loss, such as LBFGS, is not changed; only the computation of the loss and the gradients is.

    If compiling fails at the first step with batches of a new form, that step and all later steps run without the
    compiler. An optimizer whose step is compiled keeps its settings and its state, and supports a schedule of the
    learning rate. If another of its settings changes from step to step, its steps run without the compiler, with a
    warning.

    The call also changes two settings of the whole process: the number of CPU threads, if the plan has one, and on a
    CPU the thresholds at which glibc's heap returns freed memory to the system (see `autocompile.heap`).

    Args:
        path: The directory of the recommendation.
        model: The model that was tuned.
        optimizer: An optimizer of the model's parameters, as it was tuned.
        loss: A function of the model and a batch that returns a scalar tensor. It is required if tuning was given one;
            the default is the `.loss` of the model's output.
        on_mismatch: What to do if the recommendation does not fit this model, optimizer or machine. "error" raises
            InvalidRecommendation. "fallback" warns, and applies what fits: another model, or a model on another type of
            device, is trained eager; on another machine or torch version the plan is applied, although it was not
            verified there; an optimizer that does not have the plan's implementation keeps its own.
        digest: The digest of the expected recommendation, "sha256:...". Any other is refused.

    Returns:
        A `PreparedStep`. Its `status` reports how it trains.

    Raises:
        InvalidRecommendation: If there is no recommendation for training, or if it does not fit and `on_mismatch` is
            "error".
        InvalidArtifact: If a file is not the one that was written.
        InvalidWorkload: If the optimizer has parameters that are not the model's.
        UsageError: If the loss is needed, and is missing.
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
    other += [f"tuned for batches of {batch} samples; your loop has to provide batches of that size"] if batch else []
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
    """Whether the artifact has a compiler cache from the same kind of machine, torch and Python as here."""
    is_cache = fitting.plan.runtime == manifest.plan.runtime and kind_of(manifest.plan).packs_as == "cache"
    return bool(manifest.files) and is_cache and fitting.is_same_machine


def _installed(opened: Opened, fitting: Fit) -> bool:
    """Install the compiler cache of the artifact, if there is one and it fits; return whether it was installed."""
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
        raise UsageError(f"a {type(optimizer).__name__} is not an optimizer", where="optimizer", remedy=remedy)


def _loss(entry: TrainingEntry, loss: Any) -> Loss:
    if loss is None and not entry.own_loss:
        remedy = "pass loss=, the function of the model and a batch that was used for tuning"
        raise UsageError("the loss is missing", where="prepare", remedy=remedy)
    if loss is not None and not callable(loss):
        remedy = "give a function of the model and a batch"
        raise UsageError(f"a {type(loss).__name__} is not a loss function", where="loss", remedy=remedy)
    given: Loss = own_loss if loss is None else loss
    return given


def _apply(manifest: Manifest, plan: Plan, model: nn.Module, optimizer: Optimizer, told: Callable[[str], None]) -> None:
    """Apply those parts of the plan that change the process, the model and the optimizer before the first step.

    `told` is called with each note that arises later.
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
    """Switch another optimizer of a prepared model to the plan's implementation; return why that is impossible, or "".

    `told` is called with each note that arises later. Raises InvalidWorkload if the optimizer has parameters that are
    not the model's.
    """
    name = plan.optimizer
    problem = problem_of(optimizer, dict(model.named_parameters()), name) if name else ""
    if not problem:
        _put_for_good(optimizer, plan, AsGiven(optimizer), told)
    return problem


def _put_for_good(optimizer: Optimizer, plan: Plan, as_given: AsGiven, told: Callable[[str], None]) -> None:
    """Switch the optimizer to the plan's implementation, also after it loads or saves a state.

    A loaded state brings the settings and the layout of the optimizer that saved it.
    """
    name = plan.optimizer
    put_on(optimizer, name)
    if name == COMPILED:
        CompiledUpdates(optimizer, plan.runtime, told)
    optimizer.register_load_state_dict_post_hook(lambda loaded: put_on(loaded, name))
    optimizer.register_state_dict_post_hook(lambda _optimizer, state: as_given.restored(state))


def _starting(opened: Opened, fitting: Fit, entry: TrainingEntry) -> list[str]:
    """Return a note on what the first step has to wait for, if it has to."""
    first = f"at the first {words_of(entry.kind).one}"
    manifest, own = opened.manifest, kind_of(fitting.plan)
    if not own.compiles:
        return []
    if _carries_cache(manifest, fitting):
        return [f"starts the compiler {first}, with the packed compiler cache"]
    return [compiles(start_of(manifest, own.unpacked), first)]


def _consequence(fitting: Fit, fault: Mismatch) -> str:
    if fitting.plan == Plan() and fitting.fallback:
        return "the model is trained eager, as given"
    if fitting.fallback:
        return "the model is trained without the compiler"
    if fault.name == "optimizer":
        return "the optimizer keeps its own implementation"
    return "the model is trained as recommended, which was not verified here"


def _remedy(fault: Mismatch) -> str:
    return f"{fault.remedy}, or tune it again here" if fault.remedy else "tune it again here"
