"""A loaded module in place of its model: attributes, methods that call the model, and what it refuses."""

import copy
import inspect
import os
import pickle
import subprocess
import sys
import threading

import models
import pytest
import torch
from msgspec.structs import replace

import autocompile
from autocompile.artifact.integrity import open_manifest, write_manifest
from autocompile.artifact.module import About, CompiledModule
from autocompile.artifact.serving import Ready, Tally
from autocompile.core.errors import UsageError
from autocompile.core.plan import Plan
from autocompile.core.serving import AS_IT_IS
from autocompile.runtime.building import build
from autocompile.runtime.inductor.settings import compiled
from autocompile.workload.call import Call
from autocompile.workload.spool import spool


def served(model):
    """A module that serves a model without a compiler."""
    tally = Tally()
    return CompiledModule(Ready(build(Call(model), Plan()), tally), model, About(), tally)


@pytest.fixture
def talker():
    torch.manual_seed(0)
    model = models.Chatter().eval()
    return model, served(model)


@pytest.fixture(scope="module")
def packed(runner, tmp_path_factory):
    from laboratory import Laboratory

    torch.manual_seed(0)
    laboratory = Laboratory(runner, tmp_path_factory.mktemp("talker"))
    model = models.Chatter().eval()
    laboratory.prepare(model, torch.randn(4, 8), preload=True)
    return model, laboratory.pack(compiled())


def test_methods_that_call_the_model_are_served_by_the_program_where_it_fits(packed):
    model = copy.deepcopy(packed[0])
    module = autocompile.load(packed[1], model)
    for shape, runtime in (((4, 8), "aot"), ((2, 2, 8), "eager")):
        x = torch.randn(*shape)
        before = module.status.calls.get(runtime, 0)
        with torch.no_grad():
            torch.testing.assert_close(module.generate(x), model.generate(x))
            torch.testing.assert_close(module.forward(x), model(x))
        assert module.status.calls[runtime] - before == 4
    assert model.steps == 3


def test_attributes_are_the_models_to_read_and_to_set(talker):
    model, module = talker
    assert module.config is model.config
    assert module.width == 8
    assert module.body is model.body
    assert [name for name, _ in module.named_parameters()] == ["body.weight", "body.bias"]
    assert next(iter(module.parameters())) is model.body.weight
    assert list(module.buffers()) == []
    module.load_state_dict({name: torch.zeros_like(value) for name, value in module.state_dict().items()})
    assert not model.body.weight.any()
    module.note = "kept"
    assert model.note == "kept"
    del module.note
    assert not hasattr(model, "note")
    assert not hasattr(module, "note")
    assert {"config", "generate", "status"} <= set(dir(module))
    with pytest.raises(AttributeError, match="'Chatter' object has no attribute 'nothing'"):
        module.nothing  # noqa: B018
    for own in ("model", "status"):
        with pytest.raises(AttributeError, match=f"{own} of a loaded module cannot be changed"):
            setattr(module, own, None)


def test_the_models_class_and_the_model_stay_as_they_are(talker):
    model, module = talker
    kinds, held = list(models.Talker.kinds), set(vars(model))
    module.once_more(torch.randn(4, 8))
    assert models.Talker.kinds == kinds
    assert set(vars(model)) == held
    assert type(model) is models.Chatter
    assert inspect.signature(module.forward) == inspect.signature(model.forward)


def test_other_models_that_a_method_makes_are_not_served(talker):
    _, module = talker
    for other in (module.fresh(), module.copied()):
        assert type(other) is models.Chatter
        other(torch.randn(4, 8))
        other.once_more(torch.randn(4, 8))
    assert module.status.calls == {}


def test_hooks_of_the_model_run_as_often_as_without_the_module(talker):
    model, module = talker
    seen = []
    model.register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(4, 8)
    model.generate(x)
    expected = len(seen)
    module.generate(x)
    assert len(seen) == 2 * expected


def test_methods_in_several_threads(talker):
    model, module = talker
    x = torch.randn(4, 8)
    with torch.no_grad():
        expected = model.generate(x)
    wrong = []

    def calls():
        wrong.extend(1 for _ in range(50) if not torch.equal(module.generate(x), expected))

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert module.status.calls == {"eager": 4 * 50 * 3}


def test_what_changes_nothing_returns_the_module(talker):
    model, module = talker
    assert module.eval() is module
    assert module.train(False) is module
    assert module.requires_grad_(False) is module
    assert not model.body.weight.requires_grad
    for same in (("to", "cpu"), ("to", torch.float32), ("to", torch.ones(1)), ("cpu",), ("float",)):
        assert getattr(module, same[0])(*same[1:]) is module


REFUSED = {
    "another precision": (
        lambda module: module.half(),
        r"half: .* torch.float32 on cpu; convert the model, and load",
    ),
    "another place": (
        lambda module: module.to("meta"),
        "to: a loaded module cannot be converted; it serves torch.float32 on cpu",
    ),
    "training": (lambda module: module.train(), "train: a loaded module serves inference only, without gradients"),
    "a copy": (
        copy.deepcopy,
        "cannot be copied or pickled, because it may contain native code; copy or pickle the model, and load",
    ),
    "a pickle": (pickle.dumps, "cannot be copied or pickled, because it may contain native code"),
}


@pytest.mark.parametrize(("refused", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_in_a_line_and_changes_nothing(talker, refused, said):
    model, module = talker
    with pytest.raises(UsageError, match=said) as raised:
        refused(module)
    assert "\n" not in str(raised.value)
    assert model.body.weight.dtype is torch.float32
    assert not model.training


def test_it_is_not_tuned_again(talker, tmp_path):
    with pytest.raises(UsageError, match="CompiledModule: a loaded module cannot be copied or pickled"):
        spool(talker[1], torch.randn(4, 8), tmp_path)


def test_another_memory_format_is_refused():
    module = served(models.Convolution().eval())
    assert module.to(memory_format=torch.contiguous_format) is module
    with pytest.raises(UsageError, match="to: "):
        module.to(memory_format=torch.channels_last)


def test_containers_are_containers():
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    module = served(layers)
    assert len(module) == 2
    assert module[0] is layers[0]
    assert list(module) == list(layers)
    assert layers[1] in module
    alone = served(torch.nn.ReLU())
    assert alone
    with pytest.raises(TypeError):
        len(alone)


def test_a_function_passes_its_attributes_and_nothing_else():
    module = served(torch.nn.functional.softplus)
    assert module.__name__ == "softplus"
    assert not hasattr(module, "eval")
    assert not hasattr(module, "parameters")


def test_without_a_model_there_are_no_attributes():
    module = served(torch.nn.functional.softplus)
    vars(module)["model"] = None
    with pytest.raises(
        AttributeError, match=r"there is no config, because the artifact was loaded without a model; call load"
    ):
        module.config  # noqa: B018
    with pytest.raises(AttributeError, match="note cannot be changed without a model"):
        module.note = 1
    assert module
    assert "status" in dir(module)


def test_what_serves_is_what_the_label_names(packed, tmp_path):
    artifact = tmp_path / "artifact"
    subprocess.run(["cp", "-r", packed[1], artifact], check=True)
    manifest = open_manifest(artifact)
    assert autocompile.load(artifact, packed[0]).status.label == manifest.label
    slow = Plan(threads=1)
    write_manifest(
        artifact, replace(manifest, serving=AS_IT_IS, plan=slow, label="eager threads=1", programs=(), files=())
    )
    assert autocompile.load(artifact, packed[0]).status.label == "eager threads=1"
    with pytest.warns(RuntimeWarning) as warned:
        other = autocompile.load(artifact, models.Talker().eval())
    assert (other.status.runtime, other.status.label) == ("eager", "eager")
    assert "eager threads" not in repr(other)
    (warning,) = warned
    assert warning.filename == __file__


def test_the_compilers_tables_are_not_printed(tmp_path):
    code = (
        "import torch\n"
        "from autocompile.runtime.building import build\n"
        "from autocompile.runtime.inductor.settings import compiled\n"
        "from autocompile.workload.call import Call\n"
        "import torch._inductor.config as inductor\n"
        "before = inductor.autotune_num_choices_displayed, inductor.max_autotune_report_choices_stats\n"
        "plan = compiled(options={'max_autotune': True, 'freezing': True})\n"
        "build(Call(torch.nn.Linear(64, 32).eval()), plan)(torch.randn(16, 64))\n"
        "assert before == (inductor.autotune_num_choices_displayed, inductor.max_autotune_report_choices_stats)\n"
        "from torch._dynamo.utils import counters\n"
        "print(counters['inductor']['select_algorithm_autotune'])\n"
    )
    empty = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}  # programs in the cache would not be timed again
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=empty, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "AUTOTUNE" not in ran.stderr
    assert "Autotune" not in ran.stderr
    assert int(ran.stdout) > 0, "nothing was timed, so nothing could have been printed"
