"""A script that defines no workload, run as it is, for the calls that it makes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Watching
from autocompile.workload.capture.endings import ended, run_as_a_script, seen_whole, shown
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.watching.choice import Chosen, chosen
from autocompile.workload.watching.files import writes_kept_in
from autocompile.workload.watching.main import run_as_main
from autocompile.workload.watching.sight import EnoughSeen, Sight

# Where what is downloaded once is kept.
_CACHES = Path.home() / ".cache"
_HOW = "define `model` and `inputs`, or a function `workload()`"


def watched(path: Path, arguments: Sequence[str], watching: Watching) -> Chosen:
    """What a script is to be tuned for, which is run as `__main__` until enough of it was seen.

    What it writes meanwhile is kept apart, and thrown away; caches in the user's home excepted.
    Raises InvalidWorkload where it raises, ends itself with an error, or calls nothing that can be tuned.
    """
    sight, own = Sight(watching), os.getpid()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with writes_kept_in(Path(scratch), free=[_CACHES], guarded=[path.absolute().parent]) as files:
                whole = _run(sight, path, arguments)
        finally:
            if os.getpid() != own:  # a process that the script has forked, which came to the script's end as well
                os._exit(0)
    seen = chosen(sight, watching.module, vars(sys.modules["__main__"]), shown(path), whole=whole)
    return replace(seen, notes=(*seen.notes, *files.notes))


def _run(sight: Sight, path: Path, arguments: Sequence[str]) -> bool:
    """Run it; whether it came to its end."""
    with run_as_a_script(path, arguments) as heard, sight.open():
        try:
            run_as_main(path, arguments)
        except EnoughSeen:
            return False
        except SystemExit as end:
            if end.code and sight.began is None:
                raise ended(end, heard.last_line, path, arguments, how=_HOW) from end
        except EOFError as fault:
            said = f"reads standard input, which is empty while it is watched ({describe_fault(fault)})"
            raise InvalidWorkload(said, where=shown(path), remedy="give what it asks for as arguments") from fault
        except Exception as fault:
            said = f"raised {describe_fault(fault)}"
            raise InvalidWorkload(said, where=shown(path), remedy=seen_whole(path, arguments)) from fault
    return True
