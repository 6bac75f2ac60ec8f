"""Differences if the workload is an unmodified script. No torch."""

import dataclasses

import pytest
from builders import workload
from msgspec.structs import replace
from test_search import run
from test_training_words import ALL, AROUND, TRAINING, closed

from autocompile.core.plan import Plan
from autocompile.core.workload import ScriptEntry
from autocompile.report.delivery import start_of_training
from autocompile.report.whole_script import whole_script_words
from autocompile.runtime.catalogue import open_space
from autocompile.search.as_is import of_the_script_as_it_is
from autocompile.search.choose.seeds import seeds_of_the_script

SEEN = ScriptEntry("Net", 100, 10.0, 0.9, True)


def test_what_would_change_the_scripts_own_loop_is_closed():
    reasons = closed(dataclasses.replace(AROUND, in_script=True, micro_batches={"2": "", "4": ""}))
    assert "not changed" in reasons["scope=with-loss"]
    assert "not changed" in reasons["micro_batches=2"]
    space, _left_out = open_space(dataclasses.replace(AROUND, in_script=True), ALL)
    assert not any(plan.micro_batches > 1 or plan.settings.get("with_loss") for _c, plan in space.programs)


@pytest.fixture
def document():
    return run(calls=10_000, script=SEEN, **TRAINING)[0]


def test_a_training_starts_by_run(document):
    assert "with `autocompile run`" in next(start_of_training(document))


@pytest.mark.parametrize(
    ("changed", "plan", "said"),
    [
        ({"autocast": "bfloat16"}, Plan(autocast="bfloat16"), "the script itself casts it to bfloat16 ("),
        ({"is_compiled": True}, Plan(runtime="inductor"), "the script itself compiles it ("),
    ],
)
def test_the_winner_is_compared_with_the_script_as_it_is(document, changed, plan, said):
    script = workload(script=replace(SEEN, **changed))
    measured = [entry for entry in document.trials if entry.speedup is not None]
    winner = replace(measured[0], plan=Plan(runtime="inductor", optimizer="fused"))
    other = replace(measured[-1], plan=plan)
    (told,) = of_the_script_as_it_is(script, [winner, other])
    assert told.text.startswith(said)
    ratio = winner.speedup.value / other.speedup.value
    assert f"the winner is {ratio:.2f}x as fast" in told.text
    (told,) = of_the_script_as_it_is(script, [replace(winner, plan=plan)])
    assert told.text.endswith("which is the winner")
    (told,) = of_the_script_as_it_is(script, [replace(winner, plan=Plan(threads=1))])
    assert "was not measured" in told.text


@pytest.mark.parametrize(
    ("changed", "plan"),
    [({"autocast": "bfloat16"}, Plan(autocast="bfloat16")), ({"is_compiled": True}, Plan(runtime="inductor"))],
)
def test_what_the_script_does_now_is_tried_first(changed, plan):
    space, _left_out = open_space(AROUND, ALL)
    (seed,) = seeds_of_the_script(replace(SEEN, **changed), space)
    assert space.plan(seed.candidate) == plan
    assert not seeds_of_the_script(SEEN, space), "the baseline is measured anyway"
    found = run(calls=10_000, script=replace(SEEN, **changed), **TRAINING)[0]
    assert any(entry.plan == plan and entry.origin in ("seed", "plain") for entry in found.trials)


def test_what_the_script_does_now_is_not_tried_where_it_is_closed():
    space, _left_out = open_space(dataclasses.replace(AROUND, double_precision=True), ALL)
    assert not seeds_of_the_script(replace(SEEN, autocast="bfloat16"), space)


def test_of_a_script_that_is_the_baseline_nothing_is_said(document):
    assert not list(of_the_script_as_it_is(workload(script=SEEN), document.trials))
    assert not list(of_the_script_as_it_is(workload(), document.trials))


def test_what_it_comes_to_for_the_whole_script_is_told(document):
    gained = replace(document.winner, speedup=replace(document.winner.speedup, value=2.0))

    def told(**seen):
        script = replace(SEEN, **seen)
        return whole_script_words(replace(document, winner=gained, workload=replace(document.workload, script=script)))

    assert told(share=0.7).endswith("30% of its time, is unchanged: the whole is about 1.54x as fast.")
    assert not told(share=0.95), "the rest is too little to be worth a sentence"
    assert not told(share=0.7, is_compiled=True), "the gain is over eager, which the script is not"
    assert not whole_script_words(replace(document, workload=replace(document.workload, script=None)))
