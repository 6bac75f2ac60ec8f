"""Measure every distinct program of a workload's space once, so that searches over the space can be replayed.

    python studies/policy/record.py                     # all that is not recorded yet: about an hour for each space
    python studies/policy/record.py --space runtimes --models encoder

Each workload has one file in results/<space>/<machine>/. Trials are appended as they are measured, so an
interrupted recording can be continued. Run nothing else meanwhile.
"""

import argparse
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from portfolio import PORTFOLIO, SPACES, machine_name

from autocompile.core.goal import Goal
from autocompile.core.job import Limits
from autocompile.core.outcome import Measurement
from autocompile.core.progress import Silence
from autocompile.host import environment, user_cache_directory
from autocompile.runner.local import LocalRunner
from autocompile.runner.replay import Recorded, RecordedTrial, Recording, to_lines
from autocompile.runtime.catalogue import open_space
from autocompile.search.ledger import Ledger
from autocompile.search.packages import drop, submit_trial
from autocompile.search.run import Bench, Settings
from autocompile.search.session import prepare_toolchain, take_profile
from autocompile.search.strategy import Strategy, load_strategy
from autocompile.space.surroundings import surroundings_of
from autocompile.workload.spool import spool

HERE = Path(__file__).parent
LONGEST_S = 300.0
# As in `autocompile tune`, precompiled headers are kept between runs, so that they are not part of the first trial.
TOOLCHAIN = user_cache_directory() / "toolchain" / environment().fingerprint


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(PORTFOLIO))
    parser.add_argument("--space", choices=SPACES, nargs="*", default=list(SPACES))
    arguments = parser.parse_args()
    for space, name in product(arguments.space, arguments.models):
        path = HERE / "results" / space / machine_name() / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            record(name, load_strategy(str(SPACES[space])), path, Path(directory))


def record(name: str, strategy: Strategy, path: Path, directory: Path) -> None:
    """Record the profile first, then every program that is not in the file."""
    with LocalRunner(directory / "jobs", TOOLCHAIN) as runner:
        bench = bench_for(name, strategy, runner, directory)
        toolchain, profile = prepare_toolchain(bench), take_profile(bench)
        if not path.exists():
            nowhere = replace(bench.workload, directory="", search_path=())
            path.write_text(to_lines(Recorded(nowhere, bench.environment, toolchain, profile)))
        known = Recording.read(path).outcomes
        around = surroundings_of(bench.workload, bench.environment, profile, toolchain)
        space, _left_out = open_space(around, bench.settings.strategy.dimensions)
        for candidate, plan in space.programs:
            if plan.key in known:
                continue
            task = bench.trial_task(plan, bench.settings.strategy.screening.timing, 0)
            outcome = submit_trial(bench, space.label(candidate), task, Limits(LONGEST_S)).reply()
            runner.forget(plan.key)
            drop(bench, plan)
            with path.open("a") as stream:
                stream.write(to_lines(RecordedTrial(plan, outcome)))
            print(name, space.label(candidate), _said(outcome), flush=True)


def bench_for(name: str, strategy: Strategy, runner: LocalRunner, directory: Path) -> Bench:
    """Return the bench of a normal run with an unlimited budget."""
    model, inputs = PORTFOLIO[name]()
    workload = spool(model, inputs, directory / "workload", name=name)
    runner.preload(workload)
    return Bench(
        workload=workload,
        environment=environment(),
        runner=runner,
        ledger=Ledger(1e6, Silence()),
        listener=Silence(),
        settings=Settings(Goal(), strategy, 0, None),
        reference=directory / "reference.pt",
        artifact=directory / "artifact",
    )


def _said(outcome: Any) -> str:
    seconds = sum(outcome.phases_s.values())
    return (
        f"{outcome.ratio.value:.3f} {seconds:.1f} s" if isinstance(outcome, Measurement) else f"{outcome.message:.80}"
    )


if __name__ == "__main__":
    main()
