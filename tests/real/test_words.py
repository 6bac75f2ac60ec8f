"""Messages for users name the module, attribute, argument, output or sample, and what to do."""

import json

import models
import pytest
import switching
import torch
from test_tune import EAGER_ONLY, command
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Acceptance
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.base import Fault, NotPackable
from autocompile.runtime.building import usable
from autocompile.runtime.differing import differing_arguments, nested_otherwise
from autocompile.runtime.eager.runtime import EagerRuntime
from autocompile.runtime.export import exported
from autocompile.runtime.guards import Refusal
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial import faults
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.trial.check.repeatability import repeatability
from autocompile.trial.faults import failure_of, is_recompile
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call
from autocompile.workload.capture.calls import accepted
from autocompile.workload.capture.training import active_in_training
from autocompile.workload.samples import Sample, as_samples


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (models.Calls(), "`self.calls` changes with every call, and each change causes a recompilation (models.py:"),
        (
            switching.Switches(),
            "`self.scale` changes from call to call, and each change causes a recompilation (switching.py:",
        ),
    ],
    ids=["until the compiler's limit", "while it is timed"],
)
def test_a_model_that_is_compiled_again_and_again_is_told_why(laboratory, model, said):
    laboratory.prepare(model.eval(), torch.ones(4, 8))
    found = laboratory.trial(compiled(), cache=type(model).__name__)
    assert isinstance(found, Failure)
    assert (found.kind, found.cause) == ("recompiled", "state changes")
    assert found.message.startswith(said)
    assert "do not change it in forward" in found.message


def test_code_that_the_compiler_skips_is_a_cause_that_others_share(laboratory):
    laboratory.prepare(nn.LSTM(8, 8).eval(), torch.ones(3, 4, 8))
    found = laboratory.trial(compiled(), cache="skipped")
    assert isinstance(found, Failure)
    assert (found.kind, found.cause) == ("unsupported", "skipped")


def test_what_a_backend_raised_is_told_and_not_that_it_raised():
    def backend(_graph, _inputs):
        raise ValueError("no such instruction")

    torch._dynamo.reset()  # of whatever was compiled in this process, which has a limit for it
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        torch.compile(torch.sin, backend=backend)(torch.ones(3))
    torch._dynamo.reset()
    found = failure_of(raised.value, Phases())
    assert found.message.startswith("ValueError: no such instruction (test_words.py:")
    assert (found.kind, found.cause) == ("error", "")


KNOWN = {
    "no compiler": (type("InvalidCxxCompiler", (Exception,), {})("none"), "unsupported"),
    "recompiled": (RuntimeError("Detected recompile when the stance forbids it"), "recompiled"),
    "memory": (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
    "usage": (InvalidWorkload("a call changes buffer v"), "invalid"),
    "not packable": (NotPackable("it does not export"), "unsupported"),
    "anything": (ValueError("no"), "error"),
}


@pytest.mark.parametrize(("fault", "kind"), KNOWN.values(), ids=KNOWN)
def test_an_exception_is_of_the_kind_that_its_runtime_knows_or_all_have(fault, kind):
    assert failure_of(fault, Phases()).kind == kind
    assert is_recompile(fault) == (kind == "recompiled")


def test_a_runtime_of_another_distribution_tells_its_own_faults(monkeypatch):
    class Own(Exception):
        pass

    class Other(EagerRuntime):
        def known_fault(self, fault):
            return Fault(fault, "unsupported", "no such layer", "it has no such layer") if type(fault) is Own else None

    monkeypatch.setattr(faults, "usable", lambda: {**usable(), "eager": Other()})
    found = failure_of(Own("E123"), Phases())
    assert (found.kind, found.cause, found.message) == ("unsupported", "no such layer", "it has no such layer")
    assert failure_of(ValueError("no"), Phases()).kind == "error"


def test_an_exception_that_cannot_be_printed_is_told_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert "whose own message cannot be printed" in failure_of(Mute(), Phases()).message


def test_a_tracer_that_gives_up_is_a_cause_that_others_share():
    found = failure_of(torch._dynamo.exc.InternalTorchDynamoError("KeyError: 3"), Phases())
    assert (found.kind, found.cause) == ("error", "untraceable")


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1,), {"mask": 2, "labels": 3}, "calls without `labels`"),
        ((1,), {}, "calls with `mask`"),
        ((1,), {"labels": 3}, "calls with `mask` and without `labels`"),
        ((1, 2, 3, 4), {}, "calls with 1 positional argument, not 4"),
        ((1, 2), {}, ""),
        ((), {"x": 1, "mask": 2}, ""),
    ],
)
def test_the_argument_that_a_program_does_not_take_is_named(args, kwargs, said):
    found = differing_arguments(("x", "mask", "labels"), 1, ("mask",), args, kwargs)
    assert found == (f"it was compiled for {said}" if said else "")


def test_a_function_whose_arguments_have_no_names_is_told_by_their_number():
    assert differing_arguments((), 2, (), (1,), {}) == "it was compiled for calls with 2 positional arguments, not 1"
    assert differing_arguments((), 2, (), (1, 2), {"scale": 1}) == "it was compiled for calls without `scale`"


def test_the_argument_that_is_nested_otherwise_is_named():
    spec = pytree.tree_structure(((1, [2, 3]), {"options": {"k": 4}}))
    args, kwargs = (1, [2, 3]), {"options": {"k": 4}}
    said = "it was compiled for an argument {} that is nested differently"
    assert nested_otherwise(spec, ("options",), (1, [2]), kwargs) == said.format("[1]")
    assert nested_otherwise(spec, ("options",), args, {"options": {"j": 4}}) == said.format("options")


def test_of_several_programs_the_one_that_takes_these_arguments_says_what_is_wrong():
    of_form, of_shape = Refusal("a", "without `mask`", of_form=True), Refusal("shape of x", "x has shape (2,)")
    assert of_form.or_nearer(of_shape) is of_shape
    assert of_shape.or_nearer(of_form) is of_shape
    assert of_form.or_nearer(Refusal("b", "with `x`", of_form=True)) is of_form


def test_a_wrong_result_says_on_which_sample():
    torch.manual_seed(0)
    inputs = [torch.randn(n, 4) for n in (2, 3, 5)]
    reference = make_reference(Call(torch.sin), as_samples(inputs), variants=1, seed=0)
    acceptance = Acceptance(published_tolerance(""))

    def wrong_for_three(x):
        return torch.sin(x) + (0.1 if len(x) == 3 else 0.0)

    def wrong_for_others_than_given(x):
        return torch.sin(x) + (0.0 if any(torch.equal(x, one) for one in inputs) else 0.1)

    assert compare(Call(wrong_for_three), reference, acceptance).fault.endswith(", on sample 2 of 3")
    fault = compare(Call(wrong_for_others_than_given), reference, acceptance).fault
    assert fault.endswith(", on a random variant of sample 1 of 3")
    assert "output is off by" in fault
    assert compare(Call(lambda x: (x,)), reference, acceptance).fault.endswith("on sample 1 of 3")
    single = make_reference(Call(torch.sin), as_samples(inputs[0]), variants=1, seed=0)
    assert compare(Call(torch.cos), single, acceptance).fault.endswith(", on the sample")


def test_what_training_mode_changes_is_told_by_module():
    plain = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0), nn.LayerNorm(2), models.Block(2))
    assert active_in_training(plain) == ()
    assert active_in_training(torch.sin) == ()
    model = nn.Sequential(plain, nn.Dropout(0.1), nn.Sequential(nn.Dropout(0.2)), nn.BatchNorm1d(2), models.Asking())
    assert active_in_training(model) == (
        "2 Dropout modules are active (first: 1)",
        "1 BatchNorm1d module is using the statistics of each batch (3)",
        "1 module is asking for self.training (4)",
    )
    assert active_in_training(model.eval()) == ()
    assert active_in_training(models.Asking()) == ("1 module is asking for self.training (the model itself)",)


def test_what_of_a_batch_is_left_out_is_named():
    batch = {"x": torch.ones(2), "labels": torch.ones(2), "ids": 3}
    assert accepted(batch, models.Asking())[1] == (
        "`labels`, `ids` were left out of every batch, because the model takes no such argument"
    )
    assert accepted((torch.ones(2), torch.ones(2, dtype=torch.long)), models.Asking())[1] == (
        "only the first of the 2 elements of every batch went to the model, which takes no more; left out: "
        "[1] (int64 tensor)"
    )


def test_an_output_that_no_program_returns_is_named():
    seen = repeatability(Call(models.Remembering()), Sample((torch.ones(2, 3),), {}), seed=0)
    assert seen.opaque_output == "output['past'] is an object of class KeyCache"
    assert repeatability(Call(models.Asking().eval()), Sample((torch.ones(2),), {}), seed=0).opaque_output == ""


def test_what_the_exporter_does_not_take_is_told_in_words():
    def model(x):
        return x if x.sum() > 0 else x * 2

    with pytest.raises(NotPackable, match=r"depends on the values of a tensor .*\(test_words.py:\d+ in model\); comp"):
        exported(model, Plan(), Sample((torch.ones(3),), {}))


def test_a_number_that_a_call_computes_is_no_constant_of_a_program():
    def model(x, mask):
        return {"y": x * 2, "kept": mask.sum().item(), "size": x.shape[0]}

    sample = Sample((torch.ones(3), torch.tensor([1, 1, 0])), {})
    with pytest.raises(NotPackable, match="its output contains a number that a call computes"):
        exported(model, Plan(), sample)
    assert exported(lambda x, _mask: {"y": x * 2, "size": x.shape[0]}, Plan(), sample).outputs == (None, "3")


SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Cache:
    def __init__(self, keys):
        self.keys = keys

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return {"scores": self.drop(x), "past": Cache(x)}

model = Net()
inputs = DataLoader(TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.long)), batch_size=4)
"""


def test_the_command_line_tells_what_to_know_first_before_the_first_trial(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "strategy.toml").write_text(EAGER_ONLY.replace("max_trials = 4", "max_trials = 1"))
    ran = command("tune", "script.py", "--budget", "2m", "--strategy", "strategy.toml", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    notices = json.loads(ran.stdout)["notices"]
    lines = ran.stderr.splitlines()
    first_trial = next(n for n, line in enumerate(lines) if " left  " in line)
    told = [line.removeprefix("note: ") for line in lines[:first_trial] if line.startswith("note: ")]
    assert told == notices
    expected = (
        "the model is in training mode: 1 Dropout module is active (drop); call model.eval() first",
        "left out: [1] (int64 tensor)",
        "output['past'] is an object of class Cache, which a compiled program cannot return",
        "from the same seed, compiled code draws other numbers than eager",
    )
    for words in expected:
        assert sum(words in notice for notice in notices) == 1, notices
