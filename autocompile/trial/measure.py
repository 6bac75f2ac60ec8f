"""One trial: build the candidate, prove it correct, then time it against the baseline."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec.structs import replace

from autocompile.core.job import Timing, TrialTask
from autocompile.core.outcome import Failure, Generated, Measurement, Outcome
from autocompile.core.plan import Plan
from autocompile.runtime.building import as_trained, built, runtime
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.preparing import compiling_aside
from autocompile.trial.check.alongside import Alongside, Lesson, learn_alongside, yardstick_of
from autocompile.trial.check.compare import Comparison, compare
from autocompile.trial.check.new_sizes import Unseen
from autocompile.trial.check.randomness import lowering_fault
from autocompile.trial.check.reference import Reference, make_reference
from autocompile.trial.clock.timing import Pairs, Subject, subject, time_pairs
from autocompile.trial.measurand import Measurand, Warmup, building_phase, measurand_of
from autocompile.trial.memory import forget_peak, peak_memory_bytes
from autocompile.trial.phases import Phases
from autocompile.trial.step_memory import step_peak_bytes
from autocompile.workload.axes import batch_of
from autocompile.workload.call import Call
from autocompile.workload.generating.spooling import unspool_texts
from autocompile.workload.metric import unspool_metric
from autocompile.workload.spool import at_batch, unspool_step
from autocompile.workload.step import Step
from autocompile.workload.training.step import TrainingStep

_WARMUP_PASSES, _FEWEST_PASSES, _WARMUP_S = 4, 2, 1.0
_TO_ANSWER_S = 0.5
# The share of this process's remaining time that goes to training or generating alongside eager.
_LEARNING_SHARE = 0.3


@dataclass(frozen=True)
class _Trial:
    """One trial: the candidate, the baseline that it is timed against, and the reference for its outputs."""

    task: TrialTask
    phases: Phases
    reference: Reference
    measurand: Measurand
    candidate: Subject
    baseline: Subject

    @property
    def compared(self) -> Step:
        """The step for the exact comparison: the candidate, or a copy of it that draws eager's random numbers."""
        alike = self.measurand.drawing_as_eager if self.reference.random else None
        return self.measurand.step if alike is None else alike

    @property
    def right(self) -> Step:
        """The step to compare with: the baseline, or a copy that draws random numbers in the candidate's order."""
        laid_out = self.measurand.laid_out if self.reference.random else None
        return self.baseline.step if laid_out is None else laid_out


def measure(task: TrialTask, phases: Phases) -> Outcome:
    """Measure one plan. Correctness is checked first: a candidate with wrong results is not timed."""
    trial = _build(task, phases)
    first_pass_s = _first_pass(trial)
    failure = trial.measurand.check_compiled()
    if failure:
        return failure
    passes_s = _warm_up(trial)
    # Measured here because neither the baseline nor the reference has run in this process yet.
    peak_bytes = _peak_bytes(trial)
    counted = runtime(task.plan.runtime).counters()  # before anything is compiled for verification only
    compared = _verify(trial)
    if compared.fault:
        return Failure(stage="verify", kind="wrong_result", message=compared.fault)
    alongside = _learn(trial)
    if alongside.fault:
        return Failure(stage="verify", kind="wrong_result", message=alongside.fault)
    generated = _generate(trial)
    if isinstance(generated, Failure):
        return generated
    pairs = _time(trial)
    unseen = _probe_unseen(trial, pairs)
    if unseen.fault:
        return Failure(stage="verify", kind="wrong_result", message=unseen.fault)
    trial.measurand.check_served()
    steady_pass_s = pairs.candidate.mean_ms / 1e3 * len(trial.candidate.samples)
    return Measurement(
        ratio=pairs.ratio,
        latency=pairs.candidate,
        baseline=pairs.baseline,
        startup=trial.measurand.startup(Warmup(first_pass_s, passes_s, steady_pass_s), phases),
        accuracy=compared.accuracy,
        counters=replace(
            counted,
            unseen=unseen.tried,
            unseen_recompiles=unseen.compiled_again,
            unseen_captures=unseen.captured,
        ),
        contamination=pairs.contamination,
        peak_memory_bytes=peak_bytes,
        decided=pairs.decided,
        batch_factor=trial.candidate.weight,
        learned=alongside.learned,
        generated=generated,
    )


def _build(task: TrialTask, phases: Phases) -> _Trial:
    """Load the workload and build both sides. From here on, the candidate's number of threads is set."""
    device, batch = task.workload.device_type, task.plan.batch
    with phases("load"):
        given, samples = unspool_step(task.workload)
        reference = Reference.load(Path(task.reference))
        own_samples, batch_factor = samples, 1.0
        if batch:
            own_samples = at_batch(samples, batch)
            reference = reference if task.workload.training else reference.at_batch(batch)
            batch_factor = batch / batch_of(samples[0])
        threads = torch.get_num_threads()
    with phases("build"):
        eager = built(given, Plan())
    with phases(building_phase(task)):
        measurand = measurand_of(task, given, own_samples)
        sides = [side.on_copies() if reference.mutates_inputs else side for side in (eager, measurand.step)]
        settles = kind_of(task.plan).has_own_threads
        baseline = subject(sides[0], samples, device, threads, settles=settles)
        candidate = subject(sides[1], own_samples, device, threads, batch_factor, settles=settles)
        candidate.apply_threads()
    runtime(task.plan.runtime).forbid_giving_up()
    return _Trial(task, phases, reference, measurand, candidate, baseline)


def _first_pass(trial: _Trial) -> float:
    """Return the seconds of the first pass, in which everything is compiled."""
    with trial.phases("compile"), trial.candidate.step.preserved():
        started = time.perf_counter()
        trial.candidate.one_pass()
        return time.perf_counter() - started


def _warm_up(trial: _Trial) -> tuple[float, ...]:
    """Return the seconds of each warm-up pass. GPU memory used by compiling does not count for the candidate's peak."""
    with trial.phases("warm-up"), trial.candidate.step.preserved():
        forget_peak(trial.task.workload.device_type)
        passes_s: list[float] = []
        while len(passes_s) < _WARMUP_PASSES and (len(passes_s) < _FEWEST_PASSES or sum(passes_s) < _WARMUP_S):
            passes_s.append(trial.candidate.one_pass())
        return tuple(passes_s)


def _peak_bytes(trial: _Trial) -> int:
    """Return the peak memory: for a training step that of the step alone, else that of the process."""
    step = trial.candidate.step
    if not isinstance(step, TrainingStep):
        return peak_memory_bytes(trial.task.workload.device_type)
    with trial.phases("warm-up"):
        return step_peak_bytes(step, trial.candidate.samples)


def _verify(trial: _Trial) -> Comparison:
    """Compare everything that the candidate does with the reference.

    A step that draws different random numbers than eager is compared while it draws eager's. Then the distribution of
    its own numbers is checked.
    """
    task, measurand = trial.task, trial.measurand
    with trial.phases("verify"):
        alike = trial.right is trial.baseline.step
        reference = _of_its_batch(trial)
        reference = reference if alike else reference.redrawn(trial.right)
        if task.plan == Plan():  # the baseline itself, compared in all cases when the reference was made
            reference = reference.first
        metric = unspool_metric(task.acceptance.metric)
        with compiling_aside() if trial.reference.random else nullcontext():
            compared = compare(trial.compared, reference, task.acceptance, metric)
        if compared.fault or (trial.compared is measurand.step and alike):
            return compared
        baseline, sample = trial.baseline.step, trial.candidate.samples[0]
        fault = lowering_fault(measurand.step, baseline, sample, task.seed, task.acceptance.tolerance)
        return dataclasses.replace(compared, fault=fault)


def _of_its_batch(trial: _Trial) -> Reference:
    """Return the reference for the candidate's batch size. Training with another batch size needs a new reference."""
    given, samples = trial.reference, tuple(trial.candidate.samples)
    if not trial.task.plan.batch or not trial.task.workload.training:
        return given
    return make_reference(trial.baseline.step, samples, variants=1, seed=given.seed, random=given.random)


def _learn(trial: _Trial) -> Alongside:
    """Train the candidate alongside eager, if requested. The baseline itself is eager and is skipped."""
    task, own, given, drawn = trial.task, trial.measurand.step, trial.right, trial.compared
    if not task.learning_s or task.plan == Plan() or not isinstance(own, TrainingStep):
        return Alongside()
    assert isinstance(given, TrainingStep)
    assert isinstance(drawn, TrainingStep)
    with trial.phases("verify"), compiling_aside() if trial.reference.random else nullcontext():
        limit_s = min(task.learning_s, _LEARNING_SHARE * trial.phases.left_s)
        lesson = Lesson(tuple(trial.candidate.samples), task.seed, limit_s)
        plan = task.plan
        near = as_trained(given, Plan(autocast=plan.autocast, float32=plan.float32)) if plan.precision else given
        trial.baseline.apply_threads()
        yardstick = yardstick_of(given, near, lesson, random=drawn is not own)
        trial.candidate.apply_threads()
        return learn_alongside(own, None if drawn is own else drawn, yardstick, lesson)


def _generate(trial: _Trial) -> Generated | Failure | None:
    """Generate texts with the candidate and with eager, if requested. The baseline itself is eager and is skipped."""
    task, entry = trial.task, trial.task.workload.generation
    if not task.learning_s or entry is None or (task.plan == Plan() and not task.prompts):
        return None
    # They import transformers.
    from autocompile.artifact.texts import Part, Texts  # noqa: PLC0415
    from autocompile.trial.check.texts import LoadedPrompts, as_it_is, generate_beside, with_parts  # noqa: PLC0415
    from autocompile.workload.generating.decoding import Decoding  # noqa: PLC0415
    from autocompile.workload.generating.prompting import Prompting  # noqa: PLC0415

    part, step = trial.baseline.step.module, trial.measurand.step
    assert isinstance(step, Call)
    assert isinstance(part, Decoding | Prompting)
    with trial.phases("verify"):
        trial.baseline.apply_threads()
        model, by_model = part.model, isinstance(part, Decoding) and task.plan.keeps_model
        own = Part(part.model if by_model else step, entry, trial.candidate.threads, by_model=by_model)
        prompts = LoadedPrompts(Path(task.prompts), model) if task.prompts else None
        parts = [own, prompts.part] if prompts else [own]
        texts = Texts(model, *parts, usual_threads=trial.baseline.threads)
        sides = as_it_is(model, trial.baseline.apply_threads), with_parts(texts, trial.candidate.apply_threads)
        limit_s = min(task.learning_s, _LEARNING_SHARE * trial.phases.left_s)
        generated = generate_beside(*sides, model, unspool_texts(task.workload), limit_s)
        fault = prompts.fault() or next(iter(texts.left), "") if prompts else ""
        if fault:
            return Failure(stage="verify", kind="error", message=f"prompts were not served as recommended: {fault}")
        return generated


def _time(trial: _Trial) -> Pairs:
    """Time both sides in pairs, after a warm-up. Recompiling is an error from here on."""
    with trial.phases("warm-up"), trial.candidate.step.preserved(), trial.baseline.step.preserved():
        trial.candidate.one_pass()
        trial.baseline.apply_threads()
        for _ in range(2):
            trial.baseline.one_pass()
    with trial.phases("timing"):
        runtime(trial.task.plan.runtime).forbid_recompiling()
        timing = _within(trial.task.timing, trial.phases)
        return time_pairs(trial.baseline, trial.candidate, timing, trial.task.seed)


def _within(timing: Timing, phases: Phases) -> Timing:
    """Shorten the timing so that it ends before the process is killed: a coarse figure is better than none."""
    return replace(timing, limit_s=min(timing.limit_s, max(0.0, phases.left_s - _TO_ANSWER_S)))


def _probe_unseen(trial: _Trial, pairs: Pairs) -> Unseen:
    """Try sizes that no sample has, if the candidate may still win."""
    if pairs.decided:
        return Unseen()
    with trial.phases("verify"):
        trial.candidate.apply_threads()
        left_s = trial.phases.left_s - _TO_ANSWER_S
        samples = trial.candidate.samples
        random = trial.reference.random
        return trial.measurand.probe_unseen(trial.compared, trial.right, samples, left_s=left_s, random=random)
