"""Searches over a recording: the same document each time, on the clock of the recording."""

import pytest
from builders import environment, failure, measurement, profile, workload
from msgspec.structs import replace

from autocompile.core.errors import RunnerError
from autocompile.core.goal import Goal
from autocompile.core.job import Acceptance, Limits, Timing, TrialTask
from autocompile.core.outcome import Failure, Measurement, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.progress import Silence
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.replay import Recorded, RecordedTrial, Recording, ReplayRunner, to_lines
from autocompile.runner.simulated import VirtualClock
from autocompile.runtime.inductor.settings import compiled
from autocompile.search.ledger import Ledger
from autocompile.search.run import Bench, Settings
from autocompile.search.session import run_study
from autocompile.search.strategy import load_strategy

STRATEGY = "[search]\nsampler = '{}'\n[dimensions]\nruntime = []\namp = ['off', 'bf16']\nfreezing = []\n"
PLANS = (
    (Plan(), 1.0),
    (compiled(), 0.6),
    (compiled(options={"freezing": True}), 0.5),
    (Plan(autocast="bfloat16"), 3.0),
    (replace(compiled(), autocast="bfloat16"), 2.0),
    (replace(compiled(options={"freezing": True}), autocast="bfloat16"), None),
)


def outcome(plan, ratio):
    if ratio is None:
        return failure("wrong_result", "verify", "off by 0.1")
    return measurement(ratio, startup_s=8.0 if not plan.is_eager else 0.0)


@pytest.fixture
def recording(tmp_path):
    about = Recorded(workload(), environment(), Toolchain(2.0, "AVX2", phases_s={"toolchain": 2.0}), profile())
    trials = [RecordedTrial(plan, outcome(plan, ratio)) for plan, ratio in PLANS]
    path = tmp_path / "net.jsonl"
    path.write_text("".join(map(to_lines, [about, *trials])))
    return Recording.read(path)


def searched(recording, tmp_path, sampler, budget_s=1e6):
    strategy = tmp_path / f"{sampler}.toml"
    strategy.write_text(STRATEGY.format(sampler))
    clock = VirtualClock()
    runner = ReplayRunner(recording, clock)
    bench = Bench(
        workload=recording.about.workload,
        environment=recording.about.environment,
        runner=runner,
        ledger=Ledger(budget_s, Silence(), clock=clock),
        listener=Silence(),
        settings=Settings(Goal(calls=10**6), load_strategy(str(strategy)), 0, None),
        reference=tmp_path / "reference.pt",
        artifact=tmp_path,
    )
    return run_study(bench), runner


@pytest.mark.parametrize("sampler", ["tpe", "random", "policy"])
def test_a_search_over_a_recording_finds_its_best(recording, tmp_path, sampler):
    document, runner = searched(recording, tmp_path, sampler)
    assert document.winner.plan.settings.get("options", {}) == {"freezing": True}
    assert runner.timeline[0][1] == Plan().key
    assert runner.clock.now == pytest.approx(sum(document.time_spent_s.values()))


def test_the_same_seed_goes_the_same_way(recording, tmp_path):
    one, other = (searched(recording, tmp_path, "tpe")[1].timeline for _ in range(2))
    assert one == other


def test_limits_are_kept_on_the_recordings_clock(recording):
    clock = VirtualClock()
    runner = ReplayRunner(recording, clock)
    task = TrialTask(workload(), compiled(), "", Timing(0.05, 1.0), Acceptance(published_tolerance("")), seed=0)
    ended = runner.submit(task, Limits(100.0, compile_s=3.0), cache="one", exclusive=True).answer()
    assert isinstance(ended, Failure)
    assert (ended.kind, clock.now) == ("timeout", pytest.approx(3.5))
    whole = runner.submit(task, Limits(100.0, compile_s=9.0), cache="one", exclusive=True).answer()
    assert isinstance(whole, Measurement)


def test_what_was_not_recorded_is_refused(recording, tmp_path):
    rest = Recording(recording.about, {})
    with pytest.raises(RunnerError, match="no recording"):
        searched(rest, tmp_path, "tpe")


def test_a_recording_is_read_as_it_was_written(recording):
    assert recording.about.profile == profile()
    plan = compiled()
    assert recording.outcomes[plan.key] == replace(outcome(plan, 0.6))
