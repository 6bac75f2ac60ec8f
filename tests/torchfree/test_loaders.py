"""A step that waits for its batches: when other DataLoader settings are tried, and the messages. No torch."""

import pytest
from builders import profile
from fakes import FakeClock, FakeRunner
from test_search import run
from test_training_words import TRAINING, answered

from autocompile.core.notices import of_loading
from autocompile.core.pipeline import InputPipeline, Loaders, LoaderSetting, LoaderTiming, LoaderTrial
from autocompile.report.text import as_text
from autocompile.search.judge.standings import at_calls


def setting(workers, prefetch=2):
    return LoaderSetting(workers, prefetch if workers else 0, pinned=False)


def tried(workers, step_ms, prefetch=2):
    return LoaderTrial(setting(workers, prefetch), step_ms, waiting_ms=step_ms / 2, start_ms=90.0, steps=20)


def loaders(*others):
    return Loaders(tried(0, 40.0), others)


def pipeline(stays=""):
    return InputPipeline("DataLoader", LoaderTiming(setting(0), 30.0, 50), stays=stays)


def tuned(input_share=0.75, stays="", budget_s=600.0, found=None, bound="input", **fields):
    """A run whose profile waits for so much of a step; how often other settings were tried, and the document."""
    asked = []

    def answer(task):
        asked.append(task)
        return found or loaders(tried(1, 25.0), tried(2, 20.0), tried(2, 19.5, 4))

    profiled = profile(bound=bound, input_share=input_share, pipeline=pipeline(stays))
    runner = FakeRunner(answered, FakeClock(), profiled=profiled, loaders=answer)
    document, _ = run(runner=runner, budget_s=budget_s, **fields)
    return len(asked), document


def test_a_setting_is_better_if_a_step_is_clearly_shorter_and_of_several_the_first():
    assert loaders(tried(1, 25.0), tried(2, 20.0), tried(2, 19.5, 4)).better == tried(2, 20.0)
    assert loaders(tried(1, 37.0)).better is None
    assert Loaders(problem="it stays").better is None
    assert str(setting(0)) == "num_workers=0"
    assert str(LoaderSetting(2, 4, pinned=True)) == (
        "num_workers=2, prefetch_factor=4, persistent_workers=True, pin_memory=True"
    )


def test_what_is_better_is_told_before_the_budget_is_spent_and_stands_in_the_snippet():
    count, document = tuned(**TRAINING)
    assert count == 1
    assert document.profile.better_setting == setting(2)
    told = (
        "the input pipeline is the bottleneck: 75% of a step is spent waiting for the DataLoader; "
        "with DataLoader(num_workers=2, "
        "prefetch_factor=2, persistent_workers=True) a step takes 20 ms in eager, instead of 40 ms as given"
    )
    assert told in document.notices
    text = as_text(document)
    assert "better: 20 ms a step, 10 ms of it waiting, with num_workers=2, prefetch_factor=2" in text
    comment = "# faster data loading: DataLoader(..., num_workers=2, prefetch_factor=2, persistent_workers=True)"
    assert comment in document.snippet.splitlines()
    assert comment in at_calls(document, 3).snippet
    compile(document.snippet, "snippet", "exec")


@pytest.mark.parametrize(
    ("fields", "count", "said"),
    [
        ({"found": loaders(tried(2, 39.0))}, 1, "no other setting that was tried is clearly better"),
        ({"found": loaders(tried(2, 39.0)), "bound": "compute"}, 1, "no other setting that was tried"),
        ({"stays": "it cannot be sent"}, 0, "no other settings were tried: it cannot be sent"),
        ({"budget_s": 4.0}, 0, "no other settings were tried: a step takes 40 ms, too long for the"),
    ],
)
def test_why_there_is_nothing_to_recommend(fields, count, said):
    asked, document = tuned(**fields, **TRAINING)
    assert asked == count
    (told,) = (notice for notice in document.notices if "input pipeline" in notice)
    effect = "slows training down" if "bound" in fields else "is the bottleneck"
    assert told.startswith(f"the input pipeline {effect}: 75% of a step")
    assert said in told
    assert "DataLoader(..." not in document.snippet


def test_a_child_that_fails_costs_the_run_nothing_but_the_advice():
    runner = FakeRunner(answered, FakeClock(), profiled=profile(input_share=0.5, pipeline=pipeline()))
    document, _ = run(runner=runner, **TRAINING)
    assert document.profile.loaders == Loaders(problem="its dataset is gone")
    assert any("were tried: its dataset is gone" in notice for notice in document.notices)


@pytest.mark.parametrize(("share", "fields"), [(0.04, TRAINING), (0.75, {})])
def test_where_batches_are_there_in_time_or_nothing_is_trained_nothing_is_tried(share, fields):
    count, document = tuned(input_share=share, **fields)
    assert count == 0
    assert document.profile.loaders is None
    assert not list(of_loading(document.profile))
