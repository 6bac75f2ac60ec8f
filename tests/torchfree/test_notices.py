"""Notices that the user needs before the budget is spent: shown immediately, only once, and saved."""

from builders import profile, workload
from fakes import FakeClock, FakeRunner
from test_search import run, usual

from autocompile.core.goal import Goal
from autocompile.core.notices import of_calls, of_compiling, of_load, of_profile, of_workload
from autocompile.core.outcome import Contamination
from autocompile.core.progress import Silence
from autocompile.core.workload import ScriptEntry
from autocompile.search.ledger import Ledger

DROPOUT = ("3 Dropout modules are active (first: encoder.drop)",)
NOISY = Contamination(100, 60, 0.4, 0.0, 0, noisy=True)
CACHE = "output['past_key_values'] is an object of class DynamicCache"


class Listening(Silence):
    def __init__(self):
        self.heard = []

    def on_stage(self, stage):
        self.heard.append(stage)

    def on_notice(self, notice):
        self.heard.append(notice)


def words(notices):
    return [notice.text for notice in notices]


def test_training_mode_is_told_where_it_matters():
    assert words(of_workload(workload(in_training_mode=True))) == []
    (told,) = words(of_workload(workload(in_training_mode=True, active_in_training=DROPOUT)))
    assert told == (
        "the model is in training mode: 3 Dropout modules are active (first: encoder.drop); "
        "call model.eval() first if you tune inference"
    )
    (parts,) = words(of_workload(workload(active_in_training=DROPOUT)))
    assert parts.startswith("parts of the model are in training mode: 3 Dropout")


def test_a_verdict_for_as_many_calls_as_the_script_makes_says_so():
    seen = workload(script=ScriptEntry("Net", 1_200, 10.0, 0.9, True))
    (told,) = words(of_calls(seen, Goal(), Goal().for_script(seen.script)))
    assert told == "the verdict is for 1,200 calls, as many as the script makes; for others, give --calls N"
    for given in (Goal(calls=50), Goal(horizon="1h"), Goal(objective="latency")):
        assert words(of_calls(seen, given, given.for_script(seen.script))) == []


def test_what_was_left_out_of_batches_is_told():
    assert words(of_workload(workload(left_out="`labels` was left out of every batch"))) == [
        "`labels` was left out of every batch"
    ]
    assert words(of_workload(workload(notes=("4 of them were kept",)))) == []


def test_an_output_that_no_program_can_return_is_told_with_what_to_do():
    (cache,) = words(of_profile(profile(opaque_output=CACHE)))
    assert cache.startswith(f"{CACHE}, which a compiled program cannot return")
    assert cache.endswith("call it with use_cache=False")
    (other,) = words(of_profile(profile(opaque_output="output is an object of class Result")))
    assert other.endswith("return tensors in a tuple, a list or a dict")


def test_an_argument_that_no_program_can_take_is_told_with_what_to_do():
    (cache,) = words(of_profile(profile(opaque_input="input['cache'] is an object of class DynamicCache")))
    assert "which a compiled program cannot take" in cache
    assert cache.endswith("autocompile tune script.py")
    (other,) = words(of_profile(profile(opaque_input="input['box'] is an object of class Box")))
    assert other.endswith("pass tensors in a tuple, a list or a dict")


def test_others_on_the_host_are_told_with_what_that_means():
    told = (
        "other processes use 40% of this machine's CPU: until that ends, no candidate will be called faster; "
        "tune while the machine is quiet"
    )
    assert words(of_load(0.4)) == words(of_profile(profile(contamination=NOISY))) == [told]
    assert words(of_load(0.05)) == words(of_profile(profile())) == []
    shared = Contamination(100, 0, 0.0, 0.0, 0, noisy=True, gpu_processes=2)
    assert words(of_profile(profile(contamination=shared)))[0].startswith("2 other processes use this GPU: until")
    hot = Contamination(100, 60, 0.0, 0.0, 0, noisy=True, throttled="heat")
    assert words(of_profile(profile(contamination=hot)))[0].startswith("the clocks of this GPU are lowered (heat): ")
    waiting = Contamination(100, 60, 0.9, 0.0, 0, noisy=True, waited_share=0.2)
    kept = "the process that uses the GPU waited for a CPU 20% of the time: until"
    assert words(of_profile(profile(contamination=waiting)))[0].startswith(kept)


def test_why_nothing_can_be_compiled_is_told():
    assert words(of_compiling("there is no C++ compiler on PATH")) == [
        "only eager configurations will be tried: there is no C++ compiler on PATH"
    ]
    assert words(of_compiling("")) == []
    (told,) = words(of_compiling("there is no C++ compiler on PATH", others=True))
    assert told == "torch.compile will not be tried: there is no C++ compiler on PATH"


def test_a_notice_is_told_once_also_if_it_comes_from_two_places():
    listener = Listening()
    ledger = Ledger(60.0, listener, clock=FakeClock())
    ledger.notice(of_load(0.5))
    ledger.notice(of_profile(profile(contamination=NOISY, opaque_output=CACHE)))
    ledger.notice(of_profile(profile(contamination=NOISY, opaque_output=CACHE)))
    assert len(listener.heard) == 2
    assert ledger.notices == tuple(listener.heard)
    assert "other processes use 50%" in ledger.notices[0]


def test_a_run_tells_them_before_its_search_and_keeps_them_in_the_document():
    clock, listener = FakeClock(), Listening()
    profiled = profile(contamination=NOISY, opaque_output=CACHE)
    runner = FakeRunner(usual, clock, toolchain_problem="g++ does not work", profiled=profiled)
    document, _ = run(runner=runner, listener=listener)
    assert len(document.notices) == 3
    assert "DynamicCache" in document.notices[0]
    assert "other processes use 40%" in document.notices[1]
    assert "g++ does not work" in document.notices[2]
    assert listener.heard[: listener.heard.index("search")][-3:] == list(document.notices)
    assert sum(heard in document.notices for heard in listener.heard) == 3


def test_a_usual_run_has_none():
    document, _ = run()
    assert document.notices == ()
