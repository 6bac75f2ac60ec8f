"""The profile as text: what bounds the model, where its time goes, and what prevents the compiler from helping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from autocompile.core.pipeline import Loaders, LoaderTiming
from autocompile.core.profile import GraphBreak, Profile, Recompile
from autocompile.core.units import format_bytes, format_ms
from autocompile.core.words import WorkloadKind, words_of
from autocompile.report.step_profile import step_lines

_SHOWN_SUBMODULES = 8


class HasParameters(Protocol):
    """A workload, or its entry in a document: its kind, and how large the model is."""

    @property
    def kind(self) -> WorkloadKind:
        """Whether the model is called or trained."""
        ...

    @property
    def parameter_count(self) -> int:
        """The number of parameters."""
        ...

    @property
    def parameter_bytes(self) -> int:
        """The memory of the parameters."""
        ...


def profile_lines(profile: Profile, workload: HasParameters) -> Iterator[str]:
    """Yield the lines of the profile, the most important first."""
    if profile.evidence:
        yield f"bound: {profile.bound}: {profile.evidence}"
    yield from _figure_lines(profile, workload)
    if profile.step:
        yield from step_lines(profile.step, words_of(workload.kind).one)
    yield from _pipeline_lines(profile)
    yield from _submodule_lines(profile)
    for block in profile.blocks:
        yield f"{len(block.paths)} repeated {block.class_name} blocks ({block.paths[0]} to {block.paths[-1]})"
    yield from _compiler_lines(profile)
    low, high = profile.self_ratio.low, profile.self_ratio.high
    error = f"error of eager itself against {profile.reference}: {profile.error_floor:.1e}; "
    yield (
        (error if profile.reference else "")
        + f"eager timed against eager reads {low:.3f} to {high:.3f}"
        + ("" if low <= 1 <= high else ", an interval that should contain 1")
    )


def _figure_lines(profile: Profile, workload: HasParameters) -> Iterator[str]:
    words = words_of(workload.kind)
    busy = "unknown" if profile.busy_share is None else f"{profile.busy_share:.0%}"
    yield (
        f"{format_ms(profile.baseline_ms.value)} a {words.one}; device busy {busy} ({profile.busy_source}); "
        f"{profile.outside_kernels_share:.0%} of a {words.one} outside kernels"
    )
    yield (
        f"{profile.kernels_per_call} kernels a {words.one}, median {format_ms(profile.median_kernel_us / 1e3)}; "
        f"{workload.parameter_count:,} parameters ({format_bytes(workload.parameter_bytes)}); "
        f"peak memory {format_bytes(profile.peak_memory_bytes)}"
    )
    if profile.ceilings:
        best = profile.ceilings
        yield (
            f"{profile.flops / 1e9:.3g} GFLOP and {format_bytes(profile.bytes)} a {words.one}: "
            f"{profile.achieved_flops_share:.0%} of {best.flops_per_s / 1e9:,.0f} GFLOP/s ({best.dtype} GEMM), "
            f"{profile.achieved_bandwidth_share:.0%} of {best.bytes_per_s / 1e9:.3g} GB/s (copy), both measured here"
        )


def _pipeline_lines(profile: Profile) -> Iterator[str]:
    if profile.pipeline is None:
        return
    yield (
        f"input pipeline ({profile.pipeline.source}): {_loader_words(profile.pipeline.own)}; "
        f"{profile.input_share:.0%} of a step is spent waiting for it"
    )
    for timing in profile.pipeline.tried:
        mark = "  better" if timing == profile.better_loader else "  tried "
        yield f"{mark}: {_loader_words(timing)}"
    if profile.loaders:
        yield from _trial_lines(profile.loaders)


def _trial_lines(loaders: Loaders) -> Iterator[str]:
    """Yield the time of a step with each setting, measured while the model trains and the workers load."""
    if loaders.own is None:
        yield f"  no other settings were tried: {loaders.problem}"
        return
    for trial in (loaders.own, *loaders.tried):
        mark = "  given " if trial == loaders.own else ("  better" if trial == loaders.better else "  tried ")
        starts = f"; workers start in {format_ms(trial.start_ms)}" if trial.setting.workers else ""
        yield (
            f"{mark}: {format_ms(trial.step_ms)} a step, {format_ms(trial.waiting_ms)} of it waiting, "
            f"with {trial.setting}{starts}"
        )


def _loader_words(timing: LoaderTiming) -> str:
    setting = timing.setting
    ahead = f", prefetch_factor={setting.prefetch}" if setting.workers else ""
    pinned = ", pin_memory=True" if setting.pinned else ""
    return f"{format_ms(timing.batch_ms)} a batch with num_workers={setting.workers}{ahead}{pinned}"


def _submodule_lines(profile: Profile) -> Iterator[str]:
    if not profile.submodules:
        return
    shown = profile.submodules[:_SHOWN_SUBMODULES]
    title = "forward by submodule" if profile.step else "time by submodule"
    names = [f"{one.path or '(the model itself)'} {one.class_name}" for one in shown]
    width = min(60, max(map(len, names)))
    yield f"{title:<{width + 2}} {'share':>5} {'self time':>10} {'allocates':>10} {'parameters':>11}"
    for one, name in zip(shown, names, strict=True):
        yield (
            f"  {name[:width]:<{width}} {one.share:>5.0%} {format_ms(one.self_ms):>10} "
            f"{format_bytes(one.allocated_bytes):>10} {format_bytes(one.parameter_bytes):>11}"
        )


def _compiler_lines(profile: Profile) -> Iterator[str]:
    if profile.trace_failure:
        yield f"not traced as a whole: {profile.trace_failure}"
    count = len(profile.graph_breaks)
    if not profile.trace_failure:
        breaks = f"{count} graph break{'s' * (count != 1)}" if count else "no graph breaks"
        yield f"{breaks} (traced as {profile.graph_count} graph{'s' * (profile.graph_count != 1)})"
    yield from _places(profile.graph_breaks)
    if profile.recompiles:
        yield f"compiled again for other samples, {len(profile.recompiles)} time{'s' * (len(profile.recompiles) != 1)}"
    yield from _places(profile.recompiles)
    if profile.exportable:
        yield "exports as one program (torch.export)"
    elif profile.exportable is False:
        yield f"does not export: {profile.export_failure}"
    elif profile.export_failure:
        yield f"whether it exports was {profile.export_failure}"


def _places(found: Iterable[GraphBreak | Recompile]) -> Iterator[str]:
    for one in found:
        yield f"  {one.file}:{one.line}: {one.reason}"
        if one.advice:
            yield f"    instead: {one.advice}"
