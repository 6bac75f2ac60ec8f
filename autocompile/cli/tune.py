"""`autocompile tune SCRIPT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def tune(
    script: Annotated[Path, typer.Argument(help="Defines `model` and `inputs`, or `workload()` returning them.")],
    budget: Annotated[str, typer.Option(help="Wall time for all of it: 90s, 30m, 1h30m.")] = "30m",
    output: Annotated[Path, typer.Option(help="Keeps the recommendation and the study; a killed run goes on.")] = Path(
        "rec"
    ),
    strategy: Annotated[str, typer.Option(help="quick, balanced, thorough, or a TOML file.")] = "balanced",
    calls: Annotated[int | None, typer.Option(help="Amortize start-up over so many calls of a process.")] = None,
    horizon: Annotated[
        str | None, typer.Option(help="Or over as many as eager makes in this time (default: 1h).")
    ] = None,
    deploy: Annotated[
        str, typer.Option(help="How production starts: jit (the cold compile counts) or artifact (its load does).")
    ] = "jit",
    objective: Annotated[str, typer.Option(help="time (amortized), latency or throughput.")] = "time",
    percentile: Annotated[
        int | None, typer.Option(help="Of the latency objective and --max-latency: 50, 90, 95, 99.")
    ] = None,
    max_latency: Annotated[str | None, typer.Option(help="A call may take no longer: 5ms; with its unit.")] = None,
    max_startup: Annotated[str | None, typer.Option(help="A start may take no longer: 10s; with its unit.")] = None,
    max_memory: Annotated[str | None, typer.Option(help="The peak may be no higher: 2GiB.")] = None,
    batch: Annotated[str, typer.Option(help="Samples in a call: fixed, tune, or sizes to try: 1,8,32.")] = "fixed",
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative error of an output (default: by precision).")
    ] = None,
    seed: Annotated[int, typer.Option(help="For the sampler and the random inputs.")] = 0,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage URL for the study (default: SQLite in the output directory).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the recommendation as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Tune the workload that SCRIPT defines.

    Exit status 130 if stopped with Ctrl-C, the best so far kept; 1 if nothing keeps the constraints.
    """
    began = time.monotonic()  # what the imports take is the user's time, too
    from autocompile.core.goal import Goal, batch_from
    from autocompile.core.progress import Silence
    from autocompile.core.serde import to_json
    from autocompile.core.units import parse_duration
    from autocompile.report.brief import brief
    from autocompile.report.progress import LiveProgress
    from autocompile.report.text import terminal
    from autocompile.search.run import Settings
    from autocompile.search.strategy import load_strategy
    from autocompile.tuning import Request, from_script
    from autocompile.tuning import tune as run

    goal = Goal(
        calls=calls, horizon=horizon, deploy=deploy, objective=objective, percentile=percentile,  # type: ignore[arg-type]
        max_latency=max_latency, max_startup=max_startup, max_memory=max_memory, tolerance=tolerance,
        batch=batch_from(batch),
    )  # fmt: skip
    request = Request(
        settings=Settings(goal, load_strategy(strategy), seed, storage),
        budget_s=parse_duration(budget, where="--budget"),
        output=str(output),
        began=began,
    )
    source = from_script(script)
    try:
        if quiet:
            document = run(source, request, Silence())
        else:
            with LiveProgress(request.budget_s) as live:
                document = run(source, request, live)
    except KeyboardInterrupt:
        print("autocompile: stopped before there was a verdict; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    if json:
        print(to_json(document, indent=2).decode())
    else:
        terminal().print(brief(document, str(output)))
        print(f"\nKept in {output}; load it with autocompile.load({str(output)!r}, model)")
    if not document.complete:
        sys.exit(130)
    if not document.is_feasible:
        sys.exit(1)
