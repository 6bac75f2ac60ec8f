"""`autocompile tune SCRIPT`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autocompile.cli import options
from autocompile.cli.naming import named_as_options
from autocompile.cli.stopping import Stopping

if TYPE_CHECKING:
    from autocompile.core.document import Document
    from autocompile.core.job import Watching
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
    workers: options.Workers = "1",
    as_module: options.AsModule = False,
    module: options.Module = "",
    function: options.Function = "",
    show_output: options.ShowOutput = False,
    watch: options.Watch = "30s",
    watch_calls: options.WatchCalls = 2000,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tune the workload that SCRIPT defines, or the model that it is seen to call.

    Exit status: 130 if stopped with Ctrl-C, 143 if stopped with SIGTERM (both keep the best result so far), 1 if no
    candidate meets the constraints.
    """
    began = time.monotonic()  # before the imports, whose time counts towards the budget
    from autocompile.core.goal import Goal, batch_from
    from autocompile.core.units import parse_duration
    from autocompile.runner.workers import parse_workers
    from autocompile.search.run import Settings
    from autocompile.search.strategy import load_strategy
    from autocompile.tuning import Request, from_script
    from autocompile.workload.capture.place import script_place

    with named_as_options():
        goal = Goal(
            calls=calls, horizon=horizon, deploy=deploy, processes=processes, objective=objective,  # type: ignore[arg-type]
            percentile=percentile, max_latency=max_latency, max_startup=max_startup, max_memory=max_memory,
            tolerance=tolerance, batch=batch_from(batch),
        )  # fmt: skip
    request = Request(
        settings=Settings(goal, load_strategy(strategy), seed, storage),
        budget_s=parse_duration(budget, where="--budget"),
        output=str(output),
        began=began,
        workers=parse_workers(workers, where="--workers"),
    )
    watching = _watching(watch, watch_calls, module, function)
    place = script_place(str(script), as_module=as_module)
    source = from_script(place, arguments or (), watching=watching, shows=show_output)
    stopping = Stopping()
    stopping.install()
    document = _run(source, request, stopping, quiet=quiet)
    as_given = shlex.join([*(["-m"] if as_module else []), str(script), *(arguments or ())])
    _show(document, output, as_given, as_json=json)
    sys.exit(_status(document, stopping))


def _show(document: Document, output: Path, script: str, *, as_json: bool) -> None:
    from autocompile.core.serde import to_json
    from autocompile.report.brief import brief
    from autocompile.report.plain import to_terminal

    if as_json:
        print(to_json(document, indent=2).decode())
    else:
        to_terminal(brief(document, str(output)))
        print("\n" + "\n".join(_kept(document, output, script)))


def _status(document: Document, stopping: Stopping) -> int:
    if not document.complete:
        return stopping.status
    return 0 if document.is_feasible else 1


def _watching(seconds: str, calls: int, module: str, function: str) -> Watching:
    from autocompile.core.errors import InvalidValue
    from autocompile.core.job import Watching
    from autocompile.core.units import parse_duration
    from autocompile.workload.function.naming import function_name

    if module and function:
        raise InvalidValue("cannot be combined with --module", where="--function", remedy="give one of the two")
    if function:
        function_name(function)
    if calls < 1:
        raise InvalidValue(f"{calls} is not a number of calls", where="--watch-calls", remedy="give 1 or more")
    return Watching(parse_duration(seconds, where="--watch"), calls, module, function)


def _kept(document: Document, output: Path, script: str) -> Iterator[str]:
    """Yield where the results are kept, and how to use them. `script`: the script and its arguments, as given."""
    from autocompile.core.protocol import SCRIPT_LOG

    yield f"Kept in {output}; {_use_of(document, output, script)}"
    if (output / SCRIPT_LOG).exists():
        yield f"Output of the script while it was watched: {output / SCRIPT_LOG}"


def _use_of(document: Document, output: Path, script: str) -> str:
    """Return how to use the recommendation."""
    training = document.workload.training
    if document.workload.script:
        return f"run the script with it: autocompile run {shlex.quote(str(output))} {script}"
    if training is None:
        return f"load it with autocompile.load({str(output)!r}, model)"
    loss = "" if training.own_loss else ", loss=loss"
    return f"train with autocompile.prepare({str(output)!r}, model, optimizer{loss})"


def _run(source: Source, request: Request, stopping: Stopping, *, quiet: bool) -> Document:
    """Run with progress. If the run is stopped before it has a verdict, exit with the status that says so."""
    from autocompile.core.progress import Silence
    from autocompile.report.progress import LiveProgress
    from autocompile.tuning import tune as run

    try:
        if quiet:
            return run(source, request, Silence())
        with LiveProgress(request.budget_s) as live:
            return run(source, request, live)
    except KeyboardInterrupt:
        print("autocompile: stopped before there was a verdict; run the same command to resume", file=sys.stderr)
        sys.exit(stopping.status)
