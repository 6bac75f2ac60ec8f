"""`autocompile export RECOMMENDATION SCRIPT --to FORMAT DIRECTORY`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autocompile.cli import options


def export(
    recommendation: Annotated[Path, typer.Argument(help="The directory of the recommendation.")],
    script: Annotated[Path, typer.Argument(help="The script that was tuned.")],
    directory: Annotated[Path, typer.Argument(help="Output directory for the file, an example and a README.")],
    to: Annotated[str, typer.Option(help="Format: onnx, openvino, or pt2 (an AOTInductor package).")],
    arguments: options.Arguments = None,
    as_module: options.AsModule = False,
    budget: Annotated[str, typer.Option(help="Wall time for the whole export.")] = "10m",
    json: Annotated[bool, typer.Option("--json", help="Print a description of the file as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Write the model as a file that runs without autocompile, and verify it against float64."""
    from contextlib import nullcontext

    from autocompile.artifact.directory import read_document
    from autocompile.core.goal import Goal
    from autocompile.core.progress import Silence
    from autocompile.core.serde import to_json
    from autocompile.core.units import parse_duration
    from autocompile.report.export import export_lines
    from autocompile.report.progress import LiveProgress
    from autocompile.search.run import Settings
    from autocompile.search.strategy import load_strategy
    from autocompile.tuning import Request, from_script, watched_before
    from autocompile.tuning import export as run
    from autocompile.workload.capture.place import script_place

    document = read_document(recommendation)
    settings = Settings(Goal(tolerance=document.tolerance), load_strategy("balanced"), 0, None)
    request = Request(settings, parse_duration(budget, where="--budget"), None)
    place = script_place(str(script), as_module=as_module)
    source = from_script(place, arguments or (), watching=watched_before(document.workload))
    with nullcontext(Silence()) if quiet else LiveProgress(request.budget_s) as listener:
        found = run(document, source, request, listener, to=to, directory=directory, where=recommendation)
    print(to_json(found, indent=2).decode() if json else "\n".join(export_lines(found, directory)))
