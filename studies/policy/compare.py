"""How long searches take to come within 2% of the best there is, replayed over the recorded workloads.

    python studies/policy/compare.py > studies/policy/README.md

Each search runs as in the product (baseline, plain torch.compile, then its own way) on a clock that only recorded
trials move. `sampler`: Optuna's TPE alone; `seeds`: space.toml's seeds, which the profile orders, before it;
`policy`: `search/choose/policy.py`. The best is the lowest amortized time of all recorded programs, for an hour's
calls. Time counts from the profile on: the compiler check before it is paid once on a machine.
"""

import tempfile
from pathlib import Path
from statistics import median, quantiles

import optuna
from msgspec.structs import replace
from portfolio import PORTFOLIO, SPACE

from autocompile.core.goal import Goal
from autocompile.core.outcome import Measurement
from autocompile.core.progress import Silence
from autocompile.runner.replay import Recording, ReplayRunner
from autocompile.runner.simulated import VirtualClock
from autocompile.search.ledger import Ledger
from autocompile.search.run import Bench, Settings
from autocompile.search.session import run_study
from autocompile.search.strategy import Strategy, load_strategy

HERE = Path(__file__).parent
SEEDS, WITHIN = range(10), 1.02


def main() -> None:
    """Print the README."""
    optuna.logging.disable_default_handler()
    print("# The policy: how soon a search is within 2% of the best\n")
    print("Made by `compare.py` from the recordings in `results/`, which `record.py` makes and explains.")
    print("Seconds on the recorded machine, medians of 10 seeds, profile included, and the machine's")
    print("one-off compiler check not. In brackets: the quartiles over the seeds.\n")
    for directory in sorted((HERE / "results").iterdir()):
        recordings = {
            name: Recording.read(path) for name in PORTFOLIO if (path := directory / f"{name}.jsonl").exists()
        }
        about = next(iter(recordings.values())).about.environment
        print(f"## {about.cpu}, {about.cores} cores, torch {about.torch}\n")
        table(recordings)


def table(recordings: dict[str, Recording]) -> None:
    """A line for each workload."""
    ways = strategies()
    print(f"| workload | programs | whole space | {' | '.join(ways)} | policy/sampler | policy/seeds |")
    print("|---|---|---|" + "---|" * (len(ways) + 2))
    shares: dict[str, list[float]] = {"sampler": [], "seeds": []}
    for name, recording in recordings.items():
        took = {way: [seconds_to_best(recording, one, seed) for seed in SEEDS] for way, one in ways.items()}
        for way, found in shares.items():
            found.append(median(p / s for p, s in zip(took["policy"], took[way], strict=True)))
        whole = sum(sum(outcome.phases_s.values()) for outcome in recording.outcomes.values())
        cells = " | ".join(spread(seconds) for seconds in took.values())
        against = " | ".join(f"{found[-1]:.2f}" for found in shares.values())
        print(f"| {name} | {len(recording.outcomes)} | {whole:.0f} s | {cells} | {against} |")
    over_all = " | ".join(f"{median(found):.2f}" for found in shares.values())
    print(f"| median | | | {' | ' * (len(ways) - 1)} | {over_all} |\n")


def spread(seconds: list[float]) -> str:
    """The median, and the quartiles."""
    low, middle, high = quantiles(seconds, method="inclusive")
    return f"{middle:.0f} s ({low:.0f} to {high:.0f})"


def strategies() -> dict[str, Strategy]:
    """The searches by name, over one space."""
    seeded = load_strategy(str(SPACE))
    alone = replace(seeded, seeds=())
    return {
        "sampler": alone,
        "seeds": seeded,
        "policy": replace(alone, search=replace(alone.search, sampler="policy")),
    }


def seconds_to_best(recording: Recording, strategy: Strategy, seed: int) -> float:
    """When the first trial within 2% of the best ended, on the replay's clock."""
    clock = VirtualClock()
    runner = ReplayRunner(recording, clock)
    goal = Goal()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(
            workload=recording.about.workload,
            environment=recording.about.environment,
            runner=runner,
            ledger=Ledger(1e7, Silence(), clock=clock),
            listener=Silence(),
            settings=Settings(goal, strategy, seed, None),
            reference=Path(directory) / "reference.pt",
            artifact=Path(directory),
        )
        run_study(bench)
    calls = goal.calls_for(recording.about.profile.baseline_ms.value / 1e3)
    totals = {key: total(outcome, calls) for key, outcome in recording.outcomes.items()}
    best, before_s = min(totals.values()), sum(recording.about.toolchain.phases_s.values())
    return next(when for when, key in runner.timeline if totals[key] <= best * WITHIN) - before_s


def total(outcome: object, calls: float) -> float:
    """Seconds that a process with so many calls takes, in units of the baseline's call; infinite for a failure."""
    if not isinstance(outcome, Measurement):
        return float("inf")
    startup = outcome.startup.total_s / (outcome.baseline.mean_ms / 1e3)
    return startup + calls * outcome.ratio.value


if __name__ == "__main__":
    main()
