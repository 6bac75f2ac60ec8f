"""The time of a run with several tasks at once: work, elapsed time, and which task is charged for what."""

import pytest
from builders import measurement
from test_replay import recording  # noqa: F401  a fixture
from test_simulated import AMPLE, COMPILED_S, EAGER, EAGER_S, FROZEN, INDUCTOR, replayed, submit  # noqa: F401

from autocompile.core.errors import RunnerError
from autocompile.core.job import ToolchainTask
from autocompile.core.outcome import Measurement, Toolchain
from autocompile.core.progress import Silence
from autocompile.runner.simulated import VirtualClock
from autocompile.search.errand import Errand, reply_to
from autocompile.search.ledger import Ledger

BUDGET_S = 100.0


def kept(clock):
    return Ledger(BUDGET_S, Silence(), clock=clock)


def answered(runner, ledger, plans):
    pending = [submit(runner, plan) for plan in plans]
    for one in pending:
        Errand(one, Measurement, ledger.charge).reply()


def test_one_after_the_other_work_is_what_passes(replayed):  # noqa: F811
    runner = replayed(1)
    ledger = kept(runner.clock)
    answered(runner, ledger, [EAGER, INDUCTOR])
    assert ledger.worked_s() == {"compiling": 8.0, "verifying": 1.0, "timing": 4.0}
    assert ledger.spent_s() == {**ledger.worked_s(), "overhead": 1.0}, "loading, which no purpose has"
    assert sum(ledger.spent_s().values()) == ledger.elapsed_s == EAGER_S + COMPILED_S


def test_side_by_side_more_is_worked_than_passes(replayed):  # noqa: F811
    runner = replayed(2)
    ledger = kept(runner.clock)
    answered(runner, ledger, [FROZEN, INDUCTOR])
    assert ledger.elapsed_s == COMPILED_S
    assert ledger.worked_s() == {"compiling": 16.0, "verifying": 1.0, "timing": 4.0}
    assert ledger.spent_s() == {"compiling": 8.0, "verifying": 0.5, "timing": 2.0, "overhead": 0.5}


def test_what_is_spent_adds_up_to_the_time_that_passed_whatever_overlaps(replayed):  # noqa: F811
    runner = replayed(2)
    ledger = kept(runner.clock)
    answered(runner, ledger, [EAGER, INDUCTOR, FROZEN])
    runner.clock.now += 4.0  # overhead: no task is running
    assert sum(ledger.worked_s().values()) > 20.0
    spent = ledger.spent_s()
    assert sum(spent.values()) == pytest.approx(ledger.elapsed_s)
    assert spent["overhead"] > 4.0
    # The two compilations overlap with other tasks of any kind, until the last one runs alone for three seconds.
    first, second = COMPILED_S / 2 / COMPILED_S, (COMPILED_S - 3.0) / 2 / COMPILED_S + 3.0 / COMPILED_S
    assert spent["compiling"] == pytest.approx(8.0 * first + 8.0 * second)


def test_the_budget_is_time_that_passes(replayed):  # noqa: F811
    runner = replayed(2)
    ledger = kept(runner.clock)
    answered(runner, ledger, [FROZEN, INDUCTOR])
    assert ledger.left_s() == BUDGET_S - COMPILED_S
    assert ledger.left_s(keeping_s=50.0) == BUDGET_S - COMPILED_S - 50.0


def test_what_takes_no_time_is_booked_as_it_was_told():
    ledger = kept(VirtualClock())
    ledger.charge({"toolchain": 2.0}, (0.0, 0.0))
    assert ledger.worked_s() == {"toolchain": 2.0}
    ledger.charge({"compile": 5.0}, (0.0, 5.0))
    ledger.charge({"timing": 1.0}, (3.0, 3.0))
    assert ledger.spent_s() == {"toolchain": 2.0, "compiling": 5.0, "timing": 1.0, "overhead": 0.0}


def test_an_errand_is_charged_once(replayed):  # noqa: F811
    runner = replayed(1)
    ledger = kept(runner.clock)
    errand = Errand(submit(runner, EAGER), Measurement, ledger.charge)
    assert errand.reply() == errand.reply() == measurement(1.0, startup_s=0.0)
    assert ledger.worked_s()["timing"] == 2.0


def test_a_reply_of_another_kind_is_a_fault_of_ours(replayed):  # noqa: F811
    with pytest.raises(AssertionError, match="Toolchain is no answer to this task"):
        reply_to(replayed(1), ToolchainTask("cpu"), AMPLE, Measurement, cache="toolchain")
    assert isinstance(reply_to(replayed(1), ToolchainTask("cpu"), AMPLE, Toolchain, cache="toolchain"), Toolchain)


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), RunnerError("it broke")])
def test_whoever_is_not_waited_for_to_the_end_is_ended(fault):
    class Interrupted:
        is_cancelled = False

        def answer(self):
            raise fault

        def cancel(self):
            self.is_cancelled = True

    pending, ledger = Interrupted(), kept(VirtualClock())
    with pytest.raises(type(fault)):
        Errand(pending, Measurement, ledger.charge).reply()
    assert pending.is_cancelled
    assert ledger.worked_s() == {}
