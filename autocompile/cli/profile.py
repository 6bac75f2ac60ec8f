"""`autocompile profile SCRIPT`."""

from __future__ import annotations

from typing import Annotated

import typer

from autocompile.cli import options


def profile(
    script: options.Script,
    arguments: options.Arguments = None,
    as_module: options.AsModule = False,
    json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Show what bounds a model, where its time goes, and what prevents the compiler from helping (about 30 s)."""
    from contextlib import nullcontext

    from autocompile.core.progress import Silence
    from autocompile.core.serde import to_json
    from autocompile.profiling import USUAL_S, profile_workload
    from autocompile.report.plain import to_terminal
    from autocompile.report.progress import LiveProgress
    from autocompile.report.text import as_lines
    from autocompile.tuning import from_script
    from autocompile.workload.capture.place import script_place

    place = script_place(str(script), as_module=as_module)
    source = from_script(place, arguments or (), tries_loaders=True)
    with nullcontext(Silence()) if quiet else LiveProgress(USUAL_S) as listener:
        found = profile_workload(source, listener)
    if json:
        print(to_json(found, indent=2).decode())
    else:
        to_terminal(as_lines(str(found)))
