"""Find graph breaks and recompiles, with their place in the user's files and the reason in plain words."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import msgspec
import torch
import torch._dynamo as dynamo
from torch import nn

from autocompile.core.profile import GraphBreak, Recompile
from autocompile.runtime.explanations import BREAKS, RECOMPILES, in_words
from autocompile.runtime.recompiled import legible
from autocompile.trial.deadline import TookTooLong, within
from autocompile.workload.call import Call
from autocompile.workload.capture.script import is_own
from autocompile.workload.samples import Sample, clone
from autocompile.workload.step import Step
from autocompile.workload.training.step import TrainingStep

# `explain` reports only breaks between two graphs that are not empty. The log (TORCH_LOGS=graph_breaks) has all
# breaks, including skipped functions.
_LOGS = tuple(f"torch._dynamo.{module}.__graph_breaks" for module in ("symbolic_convert", "convert_frame"))
_TOLD = re.compile(r"in user code at (.*):(\d+)\nGraph Break Reason: ([\s\S]*)")
_TRACEBACK = re.compile(r"User code traceback:\n([\s\S]*)")
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+)', re.MULTILINE)


@dataclass(frozen=True)
class Traced:
    """The number of graphs of a traced model, and its graph breaks. `failure`: why it could not be traced, or ""."""

    graphs: int
    breaks: tuple[GraphBreak, ...]
    failure: str


def traced_in(step: Step, sample: Sample, limit_s: float) -> Traced:
    """Trace the model that this step calls. In a training step, that is the first call of the model by the loss."""
    if isinstance(step, TrainingStep):
        call = step.first_call(sample)
        if call is None:
            return Traced(0, (), "the loss does not call the model itself")
        return graph_breaks(Call(step.module), call, limit_s)
    assert isinstance(step, Call)
    return graph_breaks(step, sample, limit_s)


def graph_breaks(call: Call, sample: Sample, limit_s: float) -> Traced:
    """Trace one call of the model without compiling. If tracing fails or takes too long, `failure` has the reason."""
    own = clone(sample)
    with _listening() as heard:
        try:
            with contextlib.redirect_stdout(io.StringIO()), within(limit_s):
                explained = Call(dynamo.explain(call.model)).work(own)
        except TookTooLong:
            return Traced(0, _told(heard), f"it took longer than {limit_s:.0f} s")
        except Exception as fault:  # the tracer may fail in any way; the trials will show whether that matters
            return Traced(
                0, _told(heard), f"{type(fault).__name__}: {str(fault).splitlines()[0] if str(fault) else ''}"
            )
        finally:
            dynamo.reset()
    breaks = {(cut.file, cut.line): cut for cut in map(_explained, explained.break_reasons)}
    breaks.update({(cut.file, cut.line): cut for cut in _told(heard)})
    return Traced(explained.graph_count, tuple(sorted(breaks.values(), key=lambda cut: (cut.file, cut.line))), "")


def placed(root: nn.Module | None, traced: Traced) -> Traced:
    """Add to each break the path of the submodule whose `forward` contains it."""
    forwards: dict[tuple[str, str], tuple[str, CodeType]] = {}
    for path, module in root.named_modules() if root is not None else ():
        code = getattr(type(module).forward, "__code__", None)
        if code is not None:
            forwards.setdefault((code.co_filename, type(module).__qualname__), (path, code))
    return replace(traced, breaks=tuple(_placed(cut, list(forwards.values())) for cut in traced.breaks))


def _placed(cut: GraphBreak, forwards: Sequence[tuple[str, CodeType]]) -> GraphBreak:
    for path, code in forwards:
        last = max((line for *_, line in code.co_lines() if line), default=0)
        if code.co_filename == cut.file and code.co_firstlineno <= cut.line <= last:
            return msgspec.structs.replace(cut, path=path)
    return cut


def recompiles(call: Call, samples: Sequence[Sample], limit_s: float) -> tuple[Recompile, ...]:
    """Return what is recompiled when the samples are called one after another, by tracing only.

    Empty if that fails or takes longer than `limit_s`.
    """
    dynamo.utils.clear_compilation_metrics()
    try:
        with contextlib.redirect_stdout(io.StringIO()), within(limit_s):
            traced = Call(torch.compile(call.model, backend="eager"))
            for sample in samples:
                traced.work(clone(sample))
    except (Exception, TookTooLong):  # a model that fails here fails in every trial too, which reports it
        return ()
    finally:
        told = [metrics for metrics in dynamo.utils.get_compilation_metrics() if metrics.recompile_reason]
        dynamo.reset()
    by_reason = {}
    for metrics in told:
        reason, advice = in_words(RECOMPILES, legible(str(metrics.recompile_reason)))
        by_reason[reason] = Recompile(str(metrics.co_filename), int(metrics.co_firstlineno or 0), reason, advice)
    return tuple(by_reason.values())


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect the tracer's log messages about graph breaks."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in _LOGS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield heard
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def _told(heard: list[str]) -> tuple[GraphBreak, ...]:
    breaks: dict[tuple[str, int], GraphBreak] = {}
    for message in heard:
        told = _TOLD.search(message)
        if told is None:
            continue
        file, line, said = told[1], int(told[2]), told[3]
        if not is_own(file):
            trace = _TRACEBACK.search(said)
            frames = [(f, int(n)) for f, n in _FRAME.findall(trace[1] if trace else "") if is_own(f)]
            file, line = frames[-1] if frames else (file, line)
        reason, advice = in_words(BREAKS, said)
        breaks.setdefault((file, line), GraphBreak(file=file, line=line, reason=reason, advice=advice))
    return tuple(breaks.values())


def _explained(told: Any) -> GraphBreak:
    frames = list(told.user_stack)
    own = [frame for frame in frames if is_own(frame.filename)] or frames
    reason, advice = in_words(BREAKS, str(told.reason))
    if not own:
        return GraphBreak(file="", line=0, reason=reason, advice=advice)
    return GraphBreak(file=own[-1].filename, line=own[-1].lineno or 0, reason=reason, advice=advice)
