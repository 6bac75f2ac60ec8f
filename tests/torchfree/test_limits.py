"""A candidate that exceeds a limit is marked wherever it is named."""

import pytest
from test_search import run

from autocompile.core.errors import GoalUnmet, UsageError
from autocompile.core.goal import Goal
from autocompile.report.html import as_html
from autocompile.report.limits import unmet, verdict_words
from autocompile.report.story import story
from autocompile.report.text import as_text


def lines_of(document):
    return [" ".join(line.split()) for line in as_text(document).splitlines()]


@pytest.fixture(scope="module")
def partly():
    """Only frozen candidates keep the limit."""
    return run(goal=Goal(deploy="jit", max_latency="4ms"), budget_s=3000)[0]


@pytest.fixture(scope="module")
def wholly():
    """Nothing keeps the limit."""
    return run(goal=Goal(deploy="jit", max_latency="2ms"), budget_s=3000)[0]


def test_the_table_says_which_limit_is_broken_and_by_how_much(partly):
    words = {entry.label: verdict_words(entry) for entry in partly.trials if entry.status == "measured"}
    assert words["eager"] == "baseline, beyond max_latency by 150%"
    assert words["inductor"] == "beyond max_latency by 25.0%"
    assert words["inductor freezing=True"] == "winner"
    lines = lines_of(partly)
    assert any(" inductor " in line and line.endswith("beyond max_latency by 25.0%") for line in lines)
    assert any(line.endswith(" winner") for line in lines)


def test_the_envelope_holds_only_what_keeps_the_limits(partly):
    assert [segment.label for segment in partly.envelope] == ["inductor freezing=True"]
    assert "(beyond a limit)" not in as_html(partly).split("<svg", maxsplit=1)[1]


def test_a_trade_off_that_breaks_a_limit_is_marked(partly):
    assert {one.label: one.is_feasible for one in partly.trade_offs} == {"eager": False, "inductor freezing=True": True}
    assert any(
        line.startswith("eager: 0 s to start") and line.endswith("(beyond a limit)") for line in lines_of(partly)
    )


def test_where_nothing_keeps_the_limits_there_is_no_winner_but_a_nearest(wholly):
    assert wholly.winner.verdict == "nearest"
    assert {entry.verdict for entry in wholly.trials if entry.status == "measured"} == {"nearest", "beyond a limit"}
    assert [segment.label for segment in wholly.envelope] == [wholly.winner.label]
    assert verdict_words(wholly.winner) == "nearest, beyond max_latency by 75.0%"
    lines = lines_of(wholly)
    nearest = f"{wholly.winner.label} comes nearest, for any number of calls"
    assert f"all measured candidates are beyond a limit; {nearest}" in lines
    assert not any("winner" in line for line in lines)
    assert "(beyond a limit)" in as_html(wholly).split("<svg", maxsplit=1)[1]
    assert f"The nearest is {wholly.winner.label}: " in "\n".join(story(wholly))


def test_an_unmet_goal_is_an_error_of_one_line_that_holds_the_recommendation(wholly):
    fault = GoalUnmet(unmet(wholly), recommendation=wholly)
    said = (
        f"goal: max_latency 2 ms is missed by 75.0%: {wholly.winner.label} comes nearest of all measured candidates; "
        "relax it, or give a larger budget"
    )
    assert str(fault) == said
    assert isinstance(fault, UsageError)
    assert fault.recommendation is wholly
