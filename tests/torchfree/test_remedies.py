"""What is tried after a failure that another value of one dimension may avoid. No torch."""

import dataclasses

import pytest
import test_search
from builders import environment, failure, trial
from msgspec.structs import replace
from test_search import run, said
from test_training_words import ADAMW, ALL, AROUND, TRAINING, closed

from autocompile.runtime.catalogue import open_space
from autocompile.runtime.inductor.settings import settings_of
from autocompile.runtime.snippet import snippet
from autocompile.search.choose.remedies import remedies

WRONG = failure("wrong_result", "verify", "up.weight: the gradient is off by 0.97")


def keeps_layouts(plan):
    return not plan.is_eager and settings_of(plan).options.get("layout_optimization") is False


def lost_in_the_compilers_layout(plan):
    """Compiled in bf16, gradients are lost unless convolutions keep their layouts; all else is slower."""
    if plan.is_eager:
        return (0.9 if plan.autocast else 1.0), 0.0
    if plan.autocast and not keeps_layouts(plan) and not settings_of(plan).only_updates:
        return WRONG
    return (0.6 if plan.autocast else 0.95), 8.0


@pytest.fixture(autouse=True)
def a_processor_with_bf16(monkeypatch):
    here = environment(cpu_features=("avx512_bf16",))
    monkeypatch.setattr(test_search, "environment", lambda: here)


def test_lost_gradients_are_compiled_again_with_the_layouts_kept():
    document, runner = run(lost_in_the_compilers_layout, has_conv=True, **TRAINING)
    assert keeps_layouts(document.winner.plan)
    assert document.winner.plan.autocast
    assert "layout_optimization': False" in document.snippet
    assert any("layout_optimization=False may avoid the failure of inductor" in one for one in said(document, "seeded"))
    lost = [plan for plan in runner.ran if lost_in_the_compilers_layout(plan) == WRONG]
    assert len(lost) <= 2
    assert not any(keeps_layouts(plan) for plan in runner.ran[: runner.ran.index(lost[0])])


def test_where_nothing_fails_no_remedy_is_tried():
    _document, runner = run(lambda plan: (0.9, 0.0) if plan.is_eager else (0.6, 8.0), has_conv=True, **TRAINING)
    assert not any(keeps_layouts(plan) for plan in runner.ran)


def test_what_does_not_help_is_not_tried_again():
    def always_lost(plan):
        return WRONG if not plan.is_eager and keeps_layouts(plan) else lost_in_the_compilers_layout(plan)

    document, runner = run(always_lost, has_conv=True, **TRAINING)
    assert not keeps_layouts(document.winner.plan)
    assert sum(keeps_layouts(plan) for plan in runner.ran) == 1
    assert len([one for one in said(document, "seeded") if "may avoid the failure" in one]) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"has_conv": False}, "the model has no convolutions"), ({"training": None}, None)],
)
def test_layouts_matter_to_the_training_of_convolutions(changed, reason):
    around = dataclasses.replace(AROUND, **changed)
    assert closed(around).get("layout_optimization=False") == reason
    assert not any(keeps_layouts(plan) for _c, plan in open_space(around, ALL)[0].programs)


def test_the_optimizers_step_has_no_convolutions():
    plans = [plan for _candidate, plan in open_space(AROUND, ALL)[0].programs if not plan.is_eager]
    assert any(keeps_layouts(plan) for plan in plans)
    assert not any(keeps_layouts(plan) for plan in plans if settings_of(plan).only_updates)


def test_a_remedy_is_for_wrong_results_and_until_one_was_tried():
    space, _left_out = open_space(AROUND, ALL)
    own = space.candidate(runtime="inductor", amp="bf16")

    def tried(candidate, outcome):
        return replace(trial(outcome=outcome), candidate=candidate, plan=space.plan(candidate))

    remedied = space.candidate(runtime="inductor", amp="bf16", layout_optimization=False)
    (seed,) = remedies(space, [tried(own, WRONG)], [])
    assert seed.candidate == remedied
    assert remedies(space, [tried(own, failure("error"))], []) == []
    assert remedies(space, [tried(own, WRONG)], [remedied]) == []
    assert remedies(space, [tried(own, WRONG), tried(remedied, WRONG)], []) == []
    narrow, _left_out = open_space(AROUND, {**ALL, "layout_optimization": (True,)})
    assert remedies(narrow, [tried(own, WRONG)], []) == []


def test_the_snippet_gives_the_compiler_its_option():
    space, _left_out = open_space(AROUND, ALL)
    plan = space.plan(space.candidate(runtime="inductor", layout_optimization=False))
    assert "compiled = torch.compile(model, options={'layout_optimization': False})" in snippet(
        plan, device_type="cpu", is_module=True, training=ADAMW
    )
