"""The number of statements that a run sends to its study's database, which may be far away."""

import math
from functools import partial

import pytest
from builders import environment, workload
from fakes import FakeClock, LanesRunner
from sharing import STRATEGY, ratio_of
from sqlalchemy import event
from sqlalchemy.engine import Engine

from autocompile.core.goal import Goal
from autocompile.core.progress import Silence
from autocompile.search import archive, session
from autocompile.search.archive import Archive, Beats
from autocompile.search.ledger import Ledger
from autocompile.search.run import Bench, Settings
from autocompile.search.strategy import load_strategy
from autocompile.search.study import kept
from autocompile.search.study.opening import sqlite_url

# The statements per trial: to claim it, begin it, and store its result with about ten attributes; plus a share of
# opening the study and of finals.
AT_MOST = 90


@pytest.fixture
def without_time(monkeypatch):
    """However long it takes, nothing that was read grows old, and no run tells that it lives."""
    monkeypatch.setattr(kept, "FRESH_S", math.inf)
    monkeypatch.setattr(archive, "FRESH_S", math.inf)
    monkeypatch.setattr(session, "Archive", partial(Archive, beats=Beats(1e6, 1e6)))


@pytest.fixture
def statements():
    """All that are executed."""
    found = []

    def note(_connection, _cursor, statement, *_more):
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.usefixtures("without_time")
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_trial_takes_few_statements(tmp_path, statements, lanes):
    clock, path = FakeClock(), tmp_path / "strategy.toml"
    path.write_text(STRATEGY.format(sampler="policy"))
    bench = Bench(
        workload=workload(),
        environment=environment(),
        runner=LanesRunner(ratio_of, clock, lanes),
        ledger=Ledger(1e6, Silence(), clock=clock),
        listener=Silence(),
        settings=Settings(
            Goal(calls=10**7, deploy="jit"), load_strategy(str(path)), 0, sqlite_url(tmp_path / "study.db")
        ),
        reference=tmp_path / "reference.pt",
        artifact=tmp_path / "artifact",
    )
    document = session.run_study(bench)
    assert len(document.trials) == 15
    assert len(statements) <= AT_MOST * len(document.trials)
