"""Carry out a plan with `torch.compile`: compile the model, and process calls before and after."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autocompile.core.outcome import Counters
from autocompile.core.plan import Plan
from autocompile.runtime.base import CachingRuntime, Fault, Trainable
from autocompile.runtime.built import Built, transformed
from autocompile.runtime.compiler_options import SILENT
from autocompile.runtime.inductor import cache
from autocompile.runtime.inductor.budget import Budgeted
from autocompile.runtime.inductor.counters import counters
from autocompile.runtime.inductor.marking import Marked
from autocompile.runtime.inductor.own_calls import OwnCalls, call_of, put_in_place
from autocompile.runtime.inductor.owned import Owned
from autocompile.runtime.inductor.settings import Settings, settings_of
from autocompile.runtime.inductor.workers import end_workers
from autocompile.runtime.padding import Padder
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.training.compiled_step import Update
from autocompile.workload.training.training import Loss


class InductorRuntime(CachingRuntime):
    """Compiles at the first call. With the option `freezing`, the weights are constants of the compiled program."""

    def build(self, step: Call, plan: Plan, _samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        settings = settings_of(plan)
        target = transformed(step.model, plan, isolate=isolate, in_place=bool(settings.scope or settings.left_eager))
        _leave_eager(target, settings)
        call = _compiled(target, settings)
        if settings.buckets:
            call = Padder(call, settings.buckets)
        if settings.ranges:
            call = Marked(call, settings.ranges)
        if settings.options.get("triton.cudagraphs"):
            call = Owned(call)
        return Built(call, plan, step.device_type, target)

    def to_train(self, module: nn.Module, loss: Loss, plan: Plan, /) -> Trainable:
        settings = settings_of(plan)
        if settings.only_updates:
            return Trainable(module, loss)
        _leave_eager(module, settings)
        model = _compiled(module, settings)
        if settings.with_loss:
            whole = _compiled(loss, settings)
            return Trainable(model, lambda _model, batch: whole(module, batch))
        if settings.scope:
            return Trainable(model, loss)
        return Trainable(model, OwnCalls(module, loss, _compiled(call_of(module), settings)))

    def compiled_update(self, update: Update, /) -> Update:
        compiled: Update = torch.compile(update, fullgraph=True, dynamic=False)
        return compiled

    def prepare(self) -> None:
        for name in ("torch._dynamo", "torch._inductor.codecache", "torch._inductor.compile_fx"):
            importlib.import_module(name)

    def cache_variables(self, directory: str) -> dict[str, str]:
        return cache.variables(directory)

    def keep_headers_in(self, directory: Path) -> None:
        cache.keep_headers_in(directory)

    def counters(self) -> Counters:
        return counters()

    def fault(self) -> str:
        if counters().graphs:
            return ""
        return "nothing was compiled: the compiler skips this code, or no call reached it"

    def forbid_recompiling(self) -> None:
        end_workers()
        torch.compiler.set_stance("fail_on_recompile")

    def forbid_giving_up(self) -> None:
        import torch._dynamo.config as dynamo  # noqa: PLC0415  production must not import it

        dynamo.fail_on_recompile_limit_hit = True

    def known_fault(self, fault: BaseException) -> Fault | None:
        from autocompile.runtime.inductor.faults import fault_of  # noqa: PLC0415  production explains nothing

        told = fault_of(fault)
        return None if told.origin is fault and told.kind == "error" and not told.cause else told

    def is_recompile(self, fault: BaseException) -> bool:
        from autocompile.runtime.inductor.faults import is_recompile  # noqa: PLC0415  production explains nothing

        return is_recompile(fault)

    def keep_cache(self, directory: Path) -> None:
        cache.keep(directory)

    def install_cache(self, files: Mapping[str, bytes]) -> None:
        cache.install(files)


def _leave_eager(target: Any, settings: Settings) -> None:
    """Exclude some submodules from compilation."""
    for path in settings.left_eager:
        part = target.get_submodule(path)
        part.forward = torch.compiler.disable(part.forward)  # type: ignore[no-untyped-call]


def _compiled(target: Any, settings: Settings) -> Callable[..., Any]:
    if settings.options.get("freezing"):
        # Dynamo reads the global setting while it traces. The option alone reaches only the backend, without effect.
        import torch._inductor.config as inductor  # noqa: PLC0415  production must not import it

        inductor.freezing = True
    if settings.recurrent:
        import torch._dynamo.config as dynamo  # noqa: PLC0415  production must not import it

        dynamo.allow_rnn = True
    keywords: dict[str, Any] = {"backend": settings.backend, "dynamic": settings.dynamic}
    if settings.options:
        keywords["options"] = {**settings.options, **_quiet(settings)}
    if not settings.scope:
        return _budgeted(torch.compile(target, **keywords), settings)
    for path in settings.scope:
        part = target.get_submodule(path)
        put_in_place(part, _budgeted(torch.compile(call_of(part), **keywords), settings))
    return target  # type: ignore[no-any-return]


def _budgeted(call: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    return Budgeted(call, settings.memory_budget) if settings.memory_budget < 1 else call


def _quiet(settings: Settings) -> dict[str, Any]:
    """Return options that stop the compiler from printing a table to standard error for everything that it times."""
    if not settings.options.get("max_autotune"):
        return {}
    import torch._inductor.config as inductor  # noqa: PLC0415  production must not import it

    return {name: value for name, value in SILENT.items() if hasattr(inductor, name)}


RUNTIME = InductorRuntime()
