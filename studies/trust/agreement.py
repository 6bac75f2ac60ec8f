"""Agreement: measure the same finalists again and again in fresh processes, and compare the verdicts.

    python studies/trust/agreement.py --verdicts 10
    python studies/trust/agreement.py --verdicts 10 --busy     # while another process is busy

The finalists are five ways to run one small CNN; some have similar speeds. Each is measured in three processes,
interleaved. Finalists that are then statistically tied with the best are measured in up to nine processes, as in the
finals of the balanced strategy. The measurements are appended to results/. `python studies/trust/table.py` passes them
to `autocompile.search.judge` and generates the README's table of its verdicts. The true ratios are taken from all quiet
processes together.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from aa import as_logs, beside, read_rows, results_of
from msgspec.structs import replace
from replay import CHANGES, still_tied
from workloads import workloads

from autocompile.core.job import Acceptance, Limits, ProfileTask, Timing, ToolchainTask, TrialTask
from autocompile.core.outcome import Measurement, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.local import LocalRunner
from autocompile.runtime.inductor.settings import compiled
from autocompile.search.errand import reply_to
from autocompile.workload.spool import spool

PROCESSES, AT_MOST = 3, 9
TIMING = Timing(precision=0.015, limit_s=2.0)
FINALISTS = {
    "baseline": Plan(),
    "inductor": compiled(),
    "inductor freezing": compiled(options={"freezing": True}),
    "inductor channels_last": replace(compiled(), memory_format="channels_last"),
    "eager channels_last": Plan(memory_format="channels_last"),
}


def main() -> None:
    """Record verdicts until the requested number is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=10)
    parser.add_argument("--busy", action="store_true")
    arguments = parser.parse_args()
    condition = "busy" if arguments.busy else "quiet"
    path = results_of()
    done = [row for row in read_rows(path) if row["kind"] == "agreement" and row["condition"] == condition]
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with LocalRunner(directory / "jobs", directory / "toolchain") as runner:
            table = Table(runner, directory)
            with beside(busy=arguments.busy):
                for number in range(len(done), arguments.verdicts):
                    row = table.verdict(number)
                    with path.open("a") as stream:
                        row = {"kind": "agreement", "condition": condition, "number": number, **row}
                        stream.write(json.dumps(row) + "\n")
                    print(row, flush=True)


class Table:
    """The workload of the finalists on a runner. As in finals, each finalist compiles once: only speed matters."""

    def __init__(self, runner: LocalRunner, directory: Path) -> None:
        self.runner = runner
        model, inputs = workloads()["medium"]
        self.workload = spool(model, inputs, directory / "workload")
        self.reference = str(directory / "reference.pt")
        reply_to(runner, ToolchainTask(self.workload.device_type), Limits(120.0), Toolchain, cache="toolchain")
        task = ProfileTask(self.workload, self.reference, TIMING, 0)
        reply = reply_to(runner, task, Limits(120.0), Profile, cache="profile")
        if not isinstance(reply, Profile):
            sys.exit(str(reply))
        for name in FINALISTS:
            self.measure(name, 0)

    def measure(self, name: str, seed: int) -> Measurement:
        """Measure one finalist in one fresh process."""
        acceptance = Acceptance(published_tolerance(""))
        task = TrialTask(self.workload, FINALISTS[name], self.reference, TIMING, acceptance, seed)
        reply = reply_to(self.runner, task, Limits(200.0), Measurement, cache=FINALISTS[name].key)
        if not isinstance(reply, Measurement):
            sys.exit(f"{name}: {reply}")
        return reply

    def verdict(self, number: int) -> dict[str, object]:
        """Measure all finalists for one verdict."""
        found: dict[str, list[Measurement]] = {name: [] for name in FINALISTS}
        going_on = list(FINALISTS)
        for process in range(AT_MOST):
            for position, name in enumerate(going_on):
                found[name].append(self.measure(name, 1000 * number + 10 * process + position + 1))
            logs = {name: [as_logs(m) for m in each] for name, each in found.items()}
            if process + 1 >= PROCESSES:
                going_on = still_tied(logs, CHANGES)
        return {
            "processes": logs,
            "noisy": sum(m.contamination.noisy for each in found.values() for m in each),
        }


if __name__ == "__main__":
    main()
