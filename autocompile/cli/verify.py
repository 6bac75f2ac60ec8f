"""`autocompile verify DIRECTORY SCRIPT`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autocompile.cli import options


def verify(
    directory: Annotated[Path, typer.Argument(help="The directory of the recommendation.")],
    script: Annotated[Path, typer.Argument(help="The script that was tuned.")],
    arguments: options.Arguments = None,
    as_module: options.AsModule = False,
    budget: Annotated[str, typer.Option(help="Wall time for the whole check.")] = "5m",
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Measure a recommendation again on this host.

    The exit status is 1 if a result is wrong, or if the model is slower than before, beyond noise.
    """
    from contextlib import nullcontext

    from autocompile.artifact.directory import read_document
    from autocompile.core.goal import Goal
    from autocompile.core.progress import Silence
    from autocompile.core.serde import to_json
    from autocompile.core.units import parse_duration
    from autocompile.report.progress import LiveProgress
    from autocompile.report.recheck import recheck_lines
    from autocompile.search.run import Settings
    from autocompile.search.strategy import load_strategy
    from autocompile.tuning import Request, from_script, watched_before
    from autocompile.tuning import verify as run
    from autocompile.workload.capture.place import script_place

    document = read_document(directory)
    settings = Settings(Goal(tolerance=document.tolerance), load_strategy("balanced"), 0, None)
    request = Request(settings, parse_duration(budget, where="--budget"), None)
    place = script_place(str(script), as_module=as_module)
    source = from_script(place, arguments or (), watching=watched_before(document.workload))
    with nullcontext(Silence()) if quiet else LiveProgress(request.budget_s) as listener:
        found = run(directory, source, request, listener)
    print(to_json(found, indent=2).decode() if json else "\n".join(recheck_lines(found)))
    sys.exit(0 if found.verdict == "good" else 1)
