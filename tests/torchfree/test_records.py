"""All records that cross a process boundary or are saved to disk can be read back unchanged."""

import msgspec
import pytest
from builders import baseline, failure, measurement, profile, trial, workload
from hypothesis import given
from hypothesis import strategies as st

from autocompile.core.candidate import Candidate
from autocompile.core.decision import Decision
from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.job import (
    Acceptance,
    CaptureTask,
    Job,
    Limits,
    ProfileTask,
    Reply,
    Timing,
    ToolchainTask,
    TrialTask,
)
from autocompile.core.outcome import Outcome, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.serde import from_json, to_json, write_atomically
from autocompile.core.tolerance import Tolerance
from autocompile.core.trial import Trial

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
text = st.text(max_size=30)
values = st.one_of(text, st.integers(-(2**53), 2**53), st.booleans())
plans = st.builds(
    Plan,
    runtime=text,
    settings=st.dictionaries(text, st.one_of(values, st.lists(values, max_size=3), st.none()), max_size=4),
    autocast=text,
    float32=text,
    attention=text,
    memory_format=text,
    threads=st.integers(0, 512),
)
timings = st.builds(Timing, precision=finite, limit_s=finite)
estimates = st.builds(Estimate, value=finite, low=finite, high=finite)


@given(plans)
def test_plans(plan):
    again = from_json(to_json(plan), Plan)
    assert again == plan
    assert again.key == plan.key


def test_equal_plans_have_equal_keys_however_their_settings_are_ordered():
    one = Plan(runtime="any", settings={"a": 1, "b": {"c": 2, "d": 3}})
    other = Plan(runtime="any", settings={"b": {"d": 3, "c": 2}, "a": 1})
    assert one == other
    assert one.key == other.key


@given(st.dictionaries(text, values, max_size=5))
def test_candidates_keep_the_types_of_their_values(chosen):
    again = from_json(to_json(Candidate(chosen)), Candidate)
    assert [(k, v, type(v)) for k, v in again.values.items()] == [(k, v, type(v)) for k, v in chosen.items()]


@given(plans, timings, st.integers(0, 2**31))
def test_jobs(plan, timing, seed):
    acceptance = Acceptance(Tolerance(1e-5, 1e-3, 2.0))
    tasks = [
        CaptureTask("script.py", "there"),
        ToolchainTask("cpu"),
        ProfileTask(workload(), "reference.pt", timing, seed),
        TrialTask(workload(), plan, "reference.pt", timing, acceptance, seed),
    ]
    for task in tasks:
        job = Job("1", task, "directory", "cache", "headers", Limits(1.0, 2.0, 3))
        assert from_json(to_json(job, indent=1), Job) == job


@given(st.floats(1e-3, 1e3), finite, text)
def test_replies(ratio, startup, said):
    replies = [
        measurement(ratio, startup_s=startup),
        failure(message=said),
        profile(),
        workload(),
        Toolchain(1.0, "AVX2"),
    ]
    for reply in replies:
        assert from_json(to_json(reply), Reply) == reply


@given(st.lists(st.floats(0.1, 10), max_size=3), text)
def test_trials(finals, label):
    one = trial(label=label, finals=[measurement(r) for r in finals])
    assert from_json(to_json(one), Trial) == one


@given(estimates, text, st.integers(1, 10**9))
def test_the_small_ones(estimate, said, count):
    for record in (estimate, Decision(1.0, "noted", said, said), Segment(said, count, None), Segment(said, 1, count)):
        assert from_json(to_json(record), type(record)) == record


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        baseline().label = "other"


def test_what_does_not_fit_names_the_field():
    with pytest.raises(msgspec.ValidationError, match=r"\$.threads"):
        from_json(b'{"threads": "many"}', Plan)


def test_an_outcome_is_told_apart_by_its_tag():
    assert from_json(to_json(failure()), Outcome) == failure()


def test_a_killed_write_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    path.write_bytes(b"old")

    def interrupted(_source, _target):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


@given(st.floats(0.01, 100), st.floats(0, 1))
def test_an_estimate_inverted_twice_is_itself(value, halfwidth):
    estimate = Estimate.around(value, halfwidth)
    twice = estimate.inverse().inverse()
    assert (twice.value, twice.low, twice.high) == pytest.approx((estimate.value, estimate.low, estimate.high))
    assert estimate.relative_halfwidth == pytest.approx(halfwidth, abs=1e-9)
    assert estimate.inverse().low <= estimate.inverse().value <= estimate.inverse().high
