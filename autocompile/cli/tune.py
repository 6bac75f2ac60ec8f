"""`autocompile tune SCRIPT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from autocompile.cli import options

if TYPE_CHECKING:
    from autocompile.core.document import Document
    from autocompile.tuning import Request, Source


def tune(
    script: options.Script,
    arguments: options.Arguments = None,
    budget: options.Budget = "30m",
    output: options.Output = Path("rec"),
    strategy: options.Preset = "balanced",
    calls: options.Calls = None,
    horizon: options.Horizon = None,
    deploy: options.Deploy = "artifact",
    processes: options.Processes = 1,
    objective: options.Objective = "time",
    percentile: options.Percentile = None,
    max_latency: options.MaxLatency = None,
    max_startup: options.MaxStartup = None,
    max_memory: options.MaxMemory = None,
    batch: options.Batch = "fixed",
    tolerance: options.Tolerance = None,
    seed: options.Seed = 0,
    storage: options.Storage = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tune the workload that SCRIPT defines.

    Exit status 130 if stopped with Ctrl-C, the best so far kept; 1 if nothing keeps the constraints.
    """
    began = time.monotonic()  # what the imports take is the user's time, too
    from autocompile.core.goal import Goal, batch_from
    from autocompile.core.serde import to_json
    from autocompile.core.units import parse_duration
    from autocompile.report.brief import brief
    from autocompile.report.text import terminal
    from autocompile.search.run import Settings
    from autocompile.search.strategy import load_strategy
    from autocompile.tuning import Request, from_script

    goal = Goal(
        calls=calls, horizon=horizon, deploy=deploy, processes=processes, objective=objective, percentile=percentile,  # type: ignore[arg-type]
        max_latency=max_latency, max_startup=max_startup, max_memory=max_memory, tolerance=tolerance,
        batch=batch_from(batch),
    )  # fmt: skip
    request = Request(
        settings=Settings(goal, load_strategy(strategy), seed, storage),
        budget_s=parse_duration(budget, where="--budget"),
        output=str(output),
        began=began,
    )
    document = _run(from_script(script, arguments or ()), request, quiet=quiet)
    if json:
        print(to_json(document, indent=2).decode())
    else:
        terminal().print(brief(document, str(output)))
        print(f"\nKept in {output}; {_use_of(document, output)}")
    if not document.complete:
        sys.exit(130)
    if not document.is_feasible:
        sys.exit(1)


def _use_of(document: Document, output: Path) -> str:
    """What to do with what is kept."""
    training = document.workload.training
    if training is None:
        return f"load it with autocompile.load({str(output)!r}, model)"
    loss = "" if training.own_loss else ", loss=loss"
    return f"train with autocompile.prepare({str(output)!r}, model, optimizer{loss})"


def _run(source: Source, request: Request, *, quiet: bool) -> Document:
    """The run, with its progress; what Ctrl-C left without a verdict ends the command."""
    from autocompile.core.progress import Silence
    from autocompile.report.progress import LiveProgress
    from autocompile.tuning import tune as run

    try:
        if quiet:
            return run(source, request, Silence())
        with LiveProgress(request.budget_s) as live:
            return run(source, request, live)
    except KeyboardInterrupt:
        print("autocompile: stopped before there was a verdict; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
