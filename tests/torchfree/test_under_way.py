"""Decisions while trials are still running: claims, finals, and the next candidates of the policy."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as with_fields

import pytest
from builders import environment, failure, measurement, trial, workload
from fakes import FakeClock, FakeRunner
from msgspec.structs import replace
from test_policy import SEEN, SPACE, seen
from test_search import usual

from autocompile.core.candidate import Candidate
from autocompile.core.document import LaneEntry
from autocompile.core.errors import RunnerError
from autocompile.core.goal import Goal
from autocompile.core.progress import Silence
from autocompile.search.archive import Archive
from autocompile.search.attempt import begin, finish
from autocompile.search.choose.forecast import Forecast
from autocompile.search.choose.policy import Stakes, choose
from autocompile.search.finals import run_finals
from autocompile.search.ledger import Ledger
from autocompile.search.reserve import kept_for_later_s
from autocompile.search.run import Bench, Settings
from autocompile.search.screening import one_trial, try_first
from autocompile.search.strategy import SearchRules, load_strategy
from autocompile.search.study.family import StudyName
from autocompile.search.study.opening import sqlite_url
from autocompile.search.wanted import following

PLAIN = SPACE.plain_compile()
FROZEN = SPACE.candidate(runtime="inductor", freezing=True)
SINGLE = SPACE.candidate(runtime="inductor", threads=1)


def study(storage=None, sampler="policy"):
    return Archive(StudyName("net", "here", "exact", "all", "seconds", {}), storage, SearchRules(sampler=sampler), 0)


@pytest.fixture
def archive():
    return study()


@pytest.fixture
def bench(tmp_path):
    clock = FakeClock()
    return Bench(
        workload=workload(),
        environment=environment(),
        runner=FakeRunner(usual, clock),
        ledger=Ledger(1e5, Silence(), clock=clock),
        listener=Silence(),
        settings=Settings(Goal(calls=10**6), load_strategy("balanced"), 0, None),
        reference=tmp_path / "reference.pt",
        artifact=tmp_path,
    )


def asked(archive, candidate):
    archive.enqueue(candidate, "search", SPACE)
    return archive.ask(SPACE)


def told(archive, candidate, ratio=0.5):
    claim = asked(archive, candidate)
    archive.tell(replace(trial(claim.number, ratio), candidate=candidate, plan=claim.plan), None)
    return claim.number


def test_what_was_asked_for_is_claimed_until_it_is_told_or_abandoned(archive):
    first, second = asked(archive, PLAIN), asked(archive, FROZEN)
    assert archive.claims == (first, second)
    assert (second.candidate, second.plan, second.origin) == (FROZEN, SPACE.plan(FROZEN), "search")
    archive.abandon(first.number)
    archive.abandon(first.number)
    archive.tell_known(second.number, None)
    assert archive.claims == ()
    assert archive.trials() == []


def test_answers_come_in_any_order(bench, archive):
    try_first(bench, SPACE, archive, SEEN)
    attempts = [begin(bench, SPACE, archive, asked(archive, candidate)) for candidate in (FROZEN, SINGLE)]
    assert [claim.candidate for claim in archive.claims] == [FROZEN, SINGLE]
    later = finish(bench, SPACE, archive, attempts[1])
    assert [claim.candidate for claim in archive.claims] == [FROZEN]
    earlier = finish(bench, SPACE, archive, attempts[0])
    assert archive.claims == ()
    assert earlier.number < later.number
    assert [known.label for known in archive.trials()][-2:] == [SPACE.label(FROZEN), SPACE.label(SINGLE)]


def test_what_is_still_out_is_not_asked_for_again(bench, archive):
    try_first(bench, SPACE, archive, SEEN)
    out = asked(archive, FROZEN)
    ran = len(bench.runner.ran)
    archive.enqueue(FROZEN, "search", SPACE)
    assert one_trial(bench, SPACE, archive) is None
    assert archive.claims == (out,)
    assert len(bench.runner.ran) == ran


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), RunnerError("it broke")])
def test_what_is_interrupted_is_abandoned_and_tried_again_later(bench, tmp_path, fault):
    storage = sqlite_url(tmp_path / "study.db")
    archive = study(storage)
    try_first(bench, SPACE, archive, SEEN)
    attempt = begin(bench, SPACE, archive, asked(archive, FROZEN))
    bench.runner.answer = lambda _plan: fault
    with pytest.raises(type(fault)):
        finish(bench, SPACE, archive, attempt)
    assert archive.claims == ()
    assert FROZEN not in [known.candidate for known in study(storage).trials()]


def test_finals_are_added_to_what_is_there_by_now(tmp_path):
    storage = sqlite_url(tmp_path / "study.db")
    one = study(storage)
    number, other_number = told(one, PLAIN), told(one, FROZEN)
    other = study(storage)
    stale = other.trials()
    one.add_final(number, measurement(0.51))
    other.add_final(number, measurement(0.52))
    one.add_final(number, measurement(0.53))
    other.add_final(other_number, measurement(0.6))
    assert all(not known.finals for known in stale)
    for archive in (one, other, study(storage)):
        finals = {known.number: [final.ratio.value for final in known.finals] for known in archive.trials()}
        assert finals == {number: [0.51, 0.52, 0.53], other_number: [0.6]}


def test_finals_that_are_added_at_the_same_time_are_all_kept(archive):
    number, rounds = told(archive, PLAIN), 8
    together = threading.Barrier(rounds)

    def add(position):
        together.wait()
        archive.add_final(number, measurement(0.5 + position / 100))

    with ThreadPoolExecutor(rounds) as pool:
        list(pool.map(add, range(rounds)))
    (known,) = archive.trials()
    assert sorted(final.ratio.value for final in known.finals) == [0.5 + n / 100 for n in range(rounds)]


def test_trials_of_ten_and_more_have_their_own_finals(archive):
    numbers = [told(archive, candidate) for candidate, _plan in SPACE.programs[:12]]
    archive.add_final(numbers[1], measurement(0.51))
    archive.add_final(numbers[11], measurement(0.61))
    archive.disqualify(numbers[10], failure())
    known = {record.number: record for record in archive.trials()}
    assert [len(known[number].finals) for number in numbers] == [0, 1] + [0] * 9 + [1]
    assert [number for number in numbers if known[number].measurement is None] == [numbers[10]]


BASE = [seen(1.0, runtime="eager"), seen(0.5, seconds=20, number=1, runtime="inductor")]
STAKES = Stakes(math.log(0.5), 1e4)


def compiled(**values):
    return SPACE.candidate(runtime="inductor", **values)


def test_what_is_out_is_believed_and_leaves_less_open():
    out = compiled(amp="bf16", freezing=True)
    before, after = Forecast(SPACE, SEEN, BASE), Forecast(SPACE, SEEN, BASE, [out])
    for candidate in (out, compiled(freezing=True), compiled(amp="bf16", freezing=True, threads=1)):
        assert after.ratio(candidate).mean == pytest.approx(before.ratio(candidate).mean)
        assert after.ratio(candidate).deviation < before.ratio(candidate).deviation
        assert after.seconds(candidate) == before.seconds(candidate)
    assert after.ratio(SPACE.candidate(threads=1)) == pytest.approx(before.ratio(SPACE.candidate(threads=1)))


@pytest.mark.parametrize("turned", [False, True], ids=["as listed", "turned around"])
def test_a_second_choice_is_no_near_twin_of_what_is_out(turned):
    first = compiled(amp="bf16", freezing=True)
    twin = compiled(amp="bf16", freezing=True, dynamic="dynamic")
    other = compiled(amp="bf16", freezing=True, mode="max-autotune-no-cudagraphs")
    untried = [other, twin] if turned else [twin, other]
    forecast = Forecast(SPACE, SEEN, BASE)
    assert choose(forecast, SPACE, [*untried, first], STAKES).candidate == first
    assert choose(forecast, SPACE, untried, STAKES).candidate == twin, "as if nothing were out"
    believing = Forecast(SPACE, SEEN, BASE, [first])
    assert choose(believing, SPACE, untried, STAKES, [first]).candidate == other


def test_what_waits_for_a_value_in_eager_waits_for_its_answer():
    probe = SPACE.candidate(runtime="eager", amp="bf16")
    waiting, ready = compiled(amp="bf16", freezing=True), compiled(dynamic="static")
    believing = Forecast(SPACE, SEEN, BASE, [probe])
    assert choose(believing, SPACE, [waiting, ready], STAKES).candidate == waiting
    assert choose(believing, SPACE, [waiting, ready], STAKES, [probe]).candidate == ready
    assert choose(believing, SPACE, [waiting], STAKES, [probe]).candidate == waiting, "there is nothing else"


def test_the_policy_wants_another_program_while_answers_are_out(bench, archive):
    try_first(bench, SPACE, archive, SEEN)
    wanted = []
    for _ in range(6):
        candidate = following(bench, SPACE, archive, SEEN, set())
        wanted.append(SPACE.plan(candidate).key)
        asked(archive, candidate)
    assert len(set(wanted)) == len(wanted)
    assert len(archive.claims) == len(wanted)
    out = [claim.candidate for claim in archive.claims]
    assert SPACE.candidate(runtime="eager", amp="bf16") in out, "its values are tried in eager first"
    assert not any(candidate["amp"] == "bf16" and candidate["runtime"] == "inductor" for candidate in out)


def test_what_is_out_counts_among_the_most_that_are_tried(bench, archive, tmp_path):
    few = tmp_path / "few.toml"
    few.write_text("[search]\nmax_trials = 3\n")
    settings = Settings(bench.settings.goal, load_strategy(str(few)), 0, None)
    bench = with_fields(bench, settings=settings)
    try_first(bench, SPACE, archive, SEEN)
    assert isinstance(following(bench, SPACE, archive, SEEN, set()), Candidate)
    asked(archive, FROZEN)
    assert "which is the limit of the strategy few" in following(bench, SPACE, archive, SEEN, set())


def test_what_takes_longer_than_is_left_does_not_keep_back_what_does_not(bench, archive):
    try_first(bench, SPACE, archive, SEEN)
    forecast = Forecast(SPACE, SEEN, archive.trials())
    known = {trial.plan.key for trial in archive.trials()}
    seconds = sorted(forecast.seconds(candidate) for candidate, plan in SPACE.programs if plan.key not in known)
    assert seconds[0] < seconds[-1] / 3
    kept_s = kept_for_later_s(bench, archive.trials(), to_come=True) / bench.ledger.budget_s

    def wanted(left_s):
        budget_s = left_s / (1 - kept_s)
        few = with_fields(bench, ledger=Ledger(budget_s, Silence(), clock=FakeClock()))
        return following(few, SPACE, archive, SEEN, set())

    chosen = wanted(seconds[-1] / 3)
    assert isinstance(chosen, Candidate)
    assert forecast.seconds(chosen) <= seconds[-1] / 3
    assert "too little for another trial" in wanted(seconds[0] / 2)


def test_optunas_sampler_goes_on_while_answers_are_out(bench):
    archive = study(sampler="tpe")
    try_first(bench, SPACE, archive, SEEN)
    claims = [archive.ask(SPACE) for _ in range(12)]
    assert archive.claims == tuple(claims)
    for claim in claims:
        finish(bench, SPACE, archive, begin(bench, SPACE, archive, claim))
    assert archive.claims == ()


def test_a_program_that_another_study_measured_is_not_run(bench, tmp_path):
    storage = sqlite_url(tmp_path / "study.db")
    earlier = Archive(StudyName("net", "here", "exact", "other", "seconds", {}), storage, SearchRules(), 0)
    number = told(earlier, FROZEN, 0.4)
    earlier.add_final(number, measurement(0.41))
    archive = study(storage)
    try_first(bench, SPACE, archive, SEEN)
    ran = len(bench.runner.ran)
    recalled = finish(bench, SPACE, archive, begin(bench, SPACE, archive, asked(archive, FROZEN)))
    assert len(bench.runner.ran) == ran
    assert [final.ratio.value for final in recalled.finals] == [0.41]
    (known,) = [known for known in study(storage).trials() if known.candidate == FROZEN]
    assert known.finals == recalled.finals


@pytest.mark.parametrize(
    ("machines", "is_begun"), [([], True), ([""], True), (["other"], False), (["other", ""], True)],
    ids=["one by one", "on a lane here", "elsewhere", "elsewhere, then here"],
)  # fmt: skip
def test_a_final_of_what_was_compiled_elsewhere_needs_the_time_to_compile_it(bench, archive, machines, is_begun):
    try_first(bench, SPACE, archive, SEEN)
    claim = asked(archive, FROZEN)
    best = replace(trial(claim.number, 0.3, startup_s=8.0), label="best", candidate=FROZEN, plan=claim.plan)
    archive.tell(best, bench.standing(best, [*archive.trials(), best]))
    bench = with_fields(bench, ledger=Ledger(100.0, Silence(), clock=bench.runner.clock))
    bench.ledger.lanes += [LaneEntry(0, "best", "measuring", 0.0, 1.0, 0.0, 0.0, machine=name) for name in machines]
    bench.runner.clock.now += 76.0  # of which packing keeps most
    run_finals(bench, archive)
    assert ("best" in first_skipped(bench)) is not is_begun


def first_skipped(bench):
    """The final for which no time was left before any was run, or ""."""
    skipped = [d.reason for d in bench.ledger.decisions if (d.action, d.subject) == ("skipped", "finals")]
    return next((reason for reason in skipped if "after 0 processes" in reason), "")
