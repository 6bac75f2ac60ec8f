"""A candidate that would fail like another one is not tried."""

import pytest
from builders import failure, profile, trial
from fakes import FakeClock, FakeRunner
from msgspec.structs import replace
from test_search import BLOCKS, run

from autocompile.core.buckets import Buckets
from autocompile.core.candidate import Candidate
from autocompile.core.plan import AxisRange, Plan
from autocompile.runtime.inductor.settings import compiled, settings_of
from autocompile.search.choose.alike import closed_by, fails_alike, foregone, likely_to_fail, speaks_against

COMPILED = compiled()
REGIONAL = compiled(scope=("layers.0",))
AROUND = compiled(left_eager=("counter",))
MARKED = compiled(ranges=(AxisRange(0, 0, 2, 8),))
FILLED = compiled(buckets=Buckets((8,), (), (), 1, (), (), 1))
FROZEN = compiled(options={"freezing": True})
STATIC = compiled(dynamic=False)
DYNAMIC = compiled(dynamic=True)


def because(cause):
    return replace(failure("recompiled", "warm-up", "`self.calls` changes with every call"), cause=cause)


@pytest.mark.parametrize(
    ("cause", "plan", "others"),
    [
        (
            "state changes",
            COMPILED,
            (FROZEN, STATIC, DYNAMIC, MARKED, FILLED, replace(compiled(), autocast="bfloat16")),
        ),
        ("argument changes", COMPILED, (FROZEN, STATIC, DYNAMIC)),
        ("argument changes", STATIC, (compiled(options={"freezing": True}, dynamic=False),)),
        ("size changes", STATIC, (compiled(options={"freezing": True}, dynamic=False),)),
        ("skipped", COMPILED, (FROZEN, STATIC, DYNAMIC, MARKED)),
        ("untraceable", COMPILED, (FROZEN, replace(compiled(), threads=2))),
        ("state changes", REGIONAL, (compiled(options={"freezing": True}, scope=("layers.0",)),)),
        ("no program", Plan("openvino"), (Plan("openvino", autocast="bfloat16"), Plan("onnxruntime"), Plan("aot"))),
    ],
)
def test_what_compiles_the_same_code_fails_alike(cause, plan, others):
    assert all(fails_alike(because(cause), plan, other) for other in others)


@pytest.mark.parametrize(
    ("cause", "plan", "others"),
    [
        ("", COMPILED, (FROZEN, DYNAMIC)),
        ("state changes", COMPILED, (Plan(), Plan(threads=2), REGIONAL, AROUND)),
        ("argument changes", STATIC, (COMPILED, DYNAMIC)),
        ("size changes", STATIC, (COMPILED, DYNAMIC, MARKED, FILLED)),
        ("skipped", COMPILED, (Plan(), REGIONAL, AROUND)),
        ("untraceable", COMPILED, (DYNAMIC, REGIONAL, replace(compiled(), autocast="bfloat16"))),
        ("no program", Plan("openvino"), (Plan(), COMPILED, Plan("aot", batch=4))),
        ("export", Plan("openvino"), (Plan("aot"), Plan("openvino", autocast="bfloat16"))),
    ],
)
def test_what_compiles_other_code_or_for_other_sizes_may_still_be_tried(cause, plan, others):
    assert not any(fails_alike(because(cause), plan, other) for other in others)


def test_only_failed_trials_tell_and_each_candidate_is_closed_once():
    failed = replace(trial(1, outcome=because("state changes")), plan=COMPILED)
    assert foregone(FROZEN, [trial(2)]) is None
    assert foregone(FROZEN, [trial(2), failed]) is failed
    assert closed_by(failed, [Plan(), COMPILED, FROZEN, REGIONAL], []) == [FROZEN]
    assert closed_by(replace(failed, plan=DYNAMIC), [COMPILED, FROZEN], [failed]) == []


@pytest.mark.parametrize("strategy", ["balanced", "thorough"])
def test_a_study_tries_one_of_those_that_must_fail_alike_and_says_what_that_saves(strategy):
    def answer(plan):
        if plan.is_eager:
            return 1.0, 0.0
        return (0.5, 8.0) if settings_of(plan).scope else because("state changes")

    document, runner = run(answer, strategy=strategy, budget_s=3000)
    assert [plan for plan in runner.ran if not plan.is_eager and not settings_of(plan).scope] == [COMPILED]
    (told,) = (decision for decision in document.decisions if "must fail like inductor" in decision.reason)
    assert "`self.calls` changes with every call; that saves about" in told.reason
    assert told.action == "narrowed"
    assert told.saved_s > 0


def test_parts_that_leave_the_reason_eager_are_tried():
    def answer(plan):
        if plan.is_eager:
            return 1.0, 0.0
        return (0.5, 8.0) if settings_of(plan).scope else because("state changes")

    runner = FakeRunner(answer, FakeClock(), profiled=profile(blocks=BLOCKS))
    document, runner = run(runner=runner, strategy="thorough", budget_s=3000)
    assert any(settings_of(plan).scope for plan in runner.ran)
    assert settings_of(document.winner.plan).scope == BLOCKS[0].paths


@pytest.mark.parametrize(
    ("failed", "other", "speaks"),
    [
        ({}, {"threads": 2}, True),
        ({}, {"sizes": "fixed"}, True),
        ({}, {"optimizer": "fused"}, True),
        ({"optimizer": "fused"}, {}, False),
        ({"optimizer": "fused"}, {"optimizer": "fused", "threads": 1}, True),
        ({}, {"autocast": "bfloat16"}, False),
        ({}, {"micro_batches": 2}, False),
        ({}, {"runtime": "eager", "settings": {}}, False),
        ({}, {}, False),
    ],
)
def test_a_failed_final_speaks_against_what_differs_in_nothing_that_matters(failed, other, speaks):
    assert speaks_against(replace(compiled(), **failed), replace(compiled(), **other)) == speaks


def tried(number, *, failed=False, finals=False, origin="search", **values):
    chosen = {"runtime": "inductor", "amp": "off", "threads": 0, "optimizer": "given", **values}
    made = trial(number, label=f"number {number}", origin=origin)
    plan = replace(
        compiled(), threads=int(chosen["threads"]), autocast=str(chosen["amp"]), optimizer=chosen["optimizer"]
    )
    outcome = failure("wrong_result") if failed else made.outcome
    passed = (made.outcome,) if finals else ()
    return replace(made, candidate=Candidate(chosen), plan=plan, outcome=outcome, finals=passed)


def test_who_has_what_failed_finals_have_in_common_is_likely_to_fail():
    baseline = tried(0, origin="baseline", runtime="eager")
    failed = [tried(1, failed=True, optimizer="fused"), tried(2, failed=True, optimizer="fused", amp="bf16")]
    others = [tried(3, optimizer="fused", threads=2), tried(4, amp="bf16"), tried(5, optimizer="fused", amp="fp16")]
    told = likely_to_fail(failed, [baseline, tried(6, finals=True), *others])
    assert told.keys() == {3, 5}
    assert told[3] == "number 1, which differs from it only in threads, failed in its final"
    assert (
        told[5]
        == "it shares optimizer=fused with number 1, number 2, which failed, and no candidate that passed has it"
    )


def test_what_another_passed_with_is_no_suspect():
    failed = [tried(1, failed=True, optimizer="fused", amp="bf16")]
    others = [
        tried(2, optimizer="fused", finals=True),
        tried(3, amp="bf16", finals=True),
        tried(4, amp="bf16", threads=2),
    ]
    assert likely_to_fail(failed, [tried(0, origin="baseline", runtime="eager"), *others]) == {}
    assert likely_to_fail([], others) == {}
