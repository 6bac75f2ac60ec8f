"""Several runs on one study, each in its own process: together they do the work of one run, once."""

import random

import optuna
import pytest
from together import Run, faults, restart

from autocompile.search.study.opening import close_storage, open_storage, sqlite_url


def winners_agree(runs):
    speedups = [run.won["speedup"] for run in runs]
    return max(speedups) <= 1.02 * min(speedups)


def unfinished(url):
    """What no run has told of, or given up."""
    storage = open_storage(url)
    (name,) = optuna.get_all_study_names(storage)
    left = optuna.load_study(study_name=name, storage=storage).trials
    close_storage(storage)
    return [trial.number for trial in left if not trial.state.is_finished()]


def test_runs_that_start_together_and_one_that_joins_late_measure_each_candidate_once(tmp_path, storage):
    gate = tmp_path / "gate"
    first, second = (
        Run(tmp_path, name, storage, bias=bias, gate=str(gate)) for name, bias in (("first", 1.0), ("second", 1.004))
    )
    for one in (first, second):  # on a busy machine, one may need seconds longer for its imports
        one.wait_for(1, "ready")
    gate.touch()
    first.wait_for(3)
    late = Run(tmp_path, "late", storage, bias=0.996)
    runs = [first, second, late]
    assert winners_agree(runs)
    assert faults(runs) == []
    for one, other in ((first, second), (second, first)):
        mine = {event["plan"] for event in one.events if event["event"] == "began" and not event["final"]}
        assert mine, "both take part"
        heard = {event["plan"] for event in one.events if event["event"] == "told"}
        assert heard > mine, "each sees what the others found"
        assert not mine & {e["plan"] for e in other.events if e["event"] == "began" and not e["final"]}


def test_runs_whose_candidates_an_optuna_sampler_suggests_share_a_study_too(tmp_path):
    storage = sqlite_url(tmp_path / "study.db")
    runs = [Run(tmp_path, name, storage, sampler="tpe") for name in ("first", "second")]
    assert winners_agree(runs)
    assert faults(runs) == []


def test_together_they_find_what_one_finds(tmp_path):
    alone = Run(tmp_path, "alone", sqlite_url(tmp_path / "alone.db"))
    runs = [Run(tmp_path, name, sqlite_url(tmp_path / "shared.db")) for name in ("first", "second")]
    assert winners_agree([alone, *runs])
    assert {run.won["trials"] for run in (alone, *runs)} == {alone.won["trials"]}


@pytest.mark.parametrize(
    ("kind", "node"), [("sqlite", ""), ("postgresql", "elsewhere")], ids=["on this machine", "on another machine"]
)
def test_a_killed_run_loses_and_repeats_nothing_and_what_it_claimed_is_open_again(tmp_path, kind, node, request):
    own = sqlite_url(tmp_path / "study.db") if kind == "sqlite" else request.getfixturevalue("database")
    killed = Run(tmp_path, "killed", own, node=node, limit_s=1.5)
    other = Run(tmp_path, "other", own, limit_s=1.5)
    killed.wait_for(random.randint(1, 8))
    killed.kill()
    joins = Run(tmp_path, "joins", own, limit_s=1.5)
    assert winners_agree([other, joins])
    assert faults([killed, other, joins]) == []
    assert unfinished(own) == []


def test_a_database_that_is_restarted_ends_no_run_and_loses_nothing(tmp_path, postgresql, database):
    runs = [Run(tmp_path, name, database, seconds=0.2) for name in ("first", "second")]
    runs[0].wait_for(3)
    restart(postgresql)
    assert winners_agree(runs)
    assert faults(runs) == []
