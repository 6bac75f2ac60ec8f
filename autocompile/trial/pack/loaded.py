"""Measure an artifact as production loads it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from autocompile.artifact.integrity import open_manifest
from autocompile.artifact.load import load
from autocompile.artifact.options import Asked
from autocompile.core.job import FreshStart, FreshTask
from autocompile.core.serde import from_json, to_json
from autocompile.core.serving import Serving
from autocompile.runtime.preparing import cache_variables
from autocompile.trial.faults import ServedOtherwise
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call


class LoadedArtifact(Call):
    """A call of an artifact that was loaded with `autocompile.load`, as in production."""

    def __init__(self, artifact: str, model: Any, threads: int) -> None:
        super().__init__(model, threads=threads)
        began = time.perf_counter()
        self._loaded = load(artifact, model, Asked(on_mismatch="error"))
        self.load_s = time.perf_counter() - began
        self._packed_as = open_manifest(Path(artifact)).serving

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._loaded(*args, **kwargs)

    def check_served(self) -> None:
        """Raise ServedOtherwise if any call so far was served by something other than the artifact itself."""
        status = self._loaded.status
        serving = Serving(status.runtime, status.start)
        if serving != self._packed_as and not status.fallbacks:
            reasons = (absence.reason for absence in status.absences if absence.serving == self._packed_as)
            raise ServedOtherwise(
                f"it was served by {serving}, not by {self._packed_as}: {next(reasons, 'it is unknown why')}"
            )
        if status.fallbacks:
            raise ServedOtherwise(
                f"{status.fallbacks[0].calls} calls were not served by it: {status.fallbacks[0].reason}"
            )


def start_afresh(task: FreshTask, phases: Phases) -> FreshStart:
    """Start in a new process with an empty compiler cache, at another path than the one where the artifact was made.

    This process does not use the device meanwhile. Raises RuntimeError, with the new process's last error line, if the
    start fails.
    """
    with phases("start-up"), tempfile.TemporaryDirectory(prefix="autocompile-") as scratch:
        asked = Path(scratch) / "task.json"
        asked.write_bytes(to_json(task))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "autocompile.trial.pack.cold_start", str(asked)],
            env={**os.environ, **cache_variables(f"{scratch}/cache")},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(f"a fresh start failed: {said[-1] if said else f'status {done.returncode}'}")
    return from_json(lines[-1], FreshStart)
