"""Loading in production: the compiled program behind its guards, the carried cache, and the fallbacks."""

import copy
import functools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import models
import psutil
import pytest
import torch
from laboratory import Laboratory, reply_to
from msgspec.structs import replace
from servings import AHEAD, AS_IT_IS, CARRIED, COMPILING

import autocompile
from autocompile.artifact.integrity import entry_for, open_manifest, write_manifest
from autocompile.core.envelope import Segment
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue, UsageError
from autocompile.core.estimate import Estimate
from autocompile.core.job import FreshStart, FreshTask, Limits
from autocompile.core.manifest import Absence, Served
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime import building
from autocompile.runtime.aot.package import package_of
from autocompile.runtime.aot.runner import bind, runner_of
from autocompile.runtime.catalogue import kind
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.kind import Kind
from autocompile.trial.check.batch_proof import batch_axis
from autocompile.workload.axes import free_axes, resized
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample

COMPILED = compiled()
RANGES = {"batch": (1, 32), "length": (2, 64)}


def call_of(batch, length, width=16):
    return {"x": torch.randn(batch, length, width), "mask": (torch.rand(batch, length) > 0.2).float()}


@pytest.fixture(scope="module")
def scorer(runner, tmp_path_factory):
    """A model and its artifact, compiled once for the tests of this file."""
    torch.manual_seed(0)
    laboratory = Laboratory(runner, tmp_path_factory.mktemp("scorer"))
    model = models.Scorer().eval()
    laboratory.prepare(model, [call_of(8, 5), call_of(8, 12)], preload=True)
    return model, laboratory.pack(COMPILED)


@pytest.fixture
def loaded(scorer):
    model = copy.deepcopy(scorer[0])
    return model, autocompile.load(scorer[1], model)


def agrees(module, model, kwargs, *args):
    torch.manual_seed(0)
    with torch.no_grad():
        expected = model(*args, **kwargs)
    torch.manual_seed(0)
    got = module(*args, **kwargs)
    assert type(got) is type(expected)
    torch.testing.assert_close(got.scores, expected.scores, rtol=1e-4, atol=1e-4)
    return got


def test_the_ranges_go_beyond_what_was_seen_and_are_served(scorer, loaded):
    program = open_manifest(scorer[1]).programs[0]
    assert {(axis.low, axis.high) for axis in program.axes} == set(RANGES.values())
    model, module = loaded
    for batch in (1, 2, 7, 32):
        for length in (2, 3, 33, 64):
            agrees(module, model, call_of(batch, length))
    assert module.status.runtime == "aot"
    assert module.status.calls == {"aot": 16}
    assert module.status.fallbacks == ()


def test_a_program_gives_the_same_by_a_runner_that_can_be_captured(loaded):
    ((guard, program),) = loaded[1]._server._programs
    alone = runner_of(program._runners._code.path, to_capture=True)
    bind(alone, program._binding._constants)
    tensors = guard((), call_of(3, 9))
    own, other = program._binding.run(tensors), alone.run(tensors)
    assert own
    assert all(map(torch.equal, own, other))


def test_output_structure_and_constants_are_the_models(loaded):
    model, module = loaded
    got = agrees(module, model, call_of(3, 9))
    assert isinstance(got, models.Scored)
    assert got.source == "scorer"
    assert not got.scores.requires_grad


def test_calls_in_another_form_mean_the_same(loaded):
    model, module = loaded
    call = call_of(3, 9)
    agrees(module, model, {}, call["x"], call["mask"])
    agrees(module, model, {"mask": call["mask"]}, call["x"])
    agrees(module, model, dict(reversed(call.items())))
    assert module.status.calls == {"aot": 3}


def outside(kind):
    call = call_of(4, 6)
    changed = {
        "shape": {**call, "x": torch.randn(4, 7, 16), "mask": torch.ones(4, 7)},
        "too long": call_of(2, 65),
        "too many": call_of(33, 4),
        "dtype of mask": {**call, "mask": call["mask"].bool()},
        "broadcast": {**call, "mask": torch.ones(1, 6)},
        "another argument": {**call, "activation": "relu"},
        "another rank": {"x": torch.randn(4, 6, 16), "mask": torch.ones(6)},
    }
    return changed[kind]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("too long", "has shape (2, 65, 16), not (n0, n1, 16), n0 from 1 to 32, n1 from 2 to 64"),
        ("too many", "has shape (33, 4, 16)"),
        ("dtype of mask", "is torch.bool, not torch.float32"),
        ("broadcast", "has shape (1, 6)"),
        ("another argument", "it was compiled for calls without `activation`"),
        ("another rank", "has shape (6,)"),
    ],
)
def test_a_call_outside_is_served_right_counted_and_said_once(loaded, caplog, kind, said):
    model, module = loaded
    call = outside(kind)
    for _ in range(3):
        agrees(module, model, call)
    (fallback,) = module.status.fallbacks
    assert said in fallback.reason
    assert fallback.calls == 3
    assert module.status.calls == {"eager": 3}
    assert sum("served by the fallback" in record.message for record in caplog.records) == 1
    agrees(module, model, call_of(2, 5))
    assert module.status.calls == {"eager": 3, "aot": 1}


def test_tensors_laid_out_otherwise_are_taken(loaded):
    model, module = loaded
    call = call_of(4, 6)
    agrees(module, model, {**call, "x": torch.randn(6, 4, 16).transpose(0, 1)})
    agrees(module, model, {**call, "x": torch.randn(8, 12, 32)[::2, ::2, ::2]})
    assert module.status.calls == {"aot": 2}


def test_what_the_model_itself_refuses_is_refused_in_its_own_words(loaded):
    _model, module = loaded
    with pytest.raises(RuntimeError, match="must match"):
        module(torch.randn(2, 3, 17), torch.ones(2, 3))
    with pytest.raises(TypeError, match="unexpected keyword"):
        module(torch.randn(2, 3, 16), torch.ones(2, 3), nonsense=1)


def change_in_place(model):
    model.up.weight.mul_(0.5)


def change_by_state_dict(model):
    model.load_state_dict({name: tensor + 0.1 for name, tensor in model.state_dict().items()})


def change_by_assignment(model):
    model.load_state_dict({name: tensor + 0.1 for name, tensor in model.state_dict().items()}, assign=True)


def change_the_data(model):
    model.down.weight.data = torch.randn_like(model.down.weight)


def change_the_parameter(model):
    model.down.bias = torch.nn.Parameter(torch.randn(16))


def change_the_buffer(model):
    model.shift = torch.randn(16)


def change_what_is_small(model):
    model.bias.add_(1.0)
    model.temperature.mul_(3.0)
    model.log_scale.add_(1.0)


def change_a_plain_attribute(model):
    model.plain = torch.full((16,), 7.0)


CHANGES = [
    change_in_place, change_by_state_dict, change_by_assignment, change_the_data, change_the_parameter,
    change_the_buffer, change_what_is_small, change_a_plain_attribute,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_changes_of_the_weights_are_followed(loaded, change):
    model, module = loaded
    call = call_of(3, 9)
    before = agrees(module, model, call).scores
    with torch.no_grad():
        change(model)
    after = agrees(module, model, call).scores
    assert not torch.allclose(before, after)
    assert module.status.calls == {"aot": 2}


def test_where_weights_lie_is_looked_at_by_the_artifacts_own_library(scorer, loaded):
    (program,) = open_manifest(scorer[1]).programs
    library = f"{program.directory}/{package_of(program).placement_file}"
    assert library in {entry.path for entry in open_manifest(scorer[1]).files}
    (_guard, native), *_ = loaded[1]._server._programs
    assert isinstance(native._binding._lie_as_they_did, functools.partial)


def test_a_model_that_moved_away_complains_itself(loaded):
    model, module = loaded
    agrees(module, model, call_of(3, 9))
    model.to("meta")
    with pytest.raises(RuntimeError, match="meta"):
        module(**call_of(3, 9))
    assert "is on meta" in module.status.fallbacks[0].reason


def test_a_layer_that_lost_what_was_written_last_complains_itself(loaded):
    model, module = loaded
    agrees(module, model, call_of(3, 9))
    model.up.bias = torch.nn.Parameter(torch.ones_like(model.up.bias))
    agrees(module, model, call_of(3, 9))
    model.up._parameters.clear()
    for _ in range(2):
        with pytest.raises(AttributeError, match="weight"):
            module(**call_of(3, 9))
    assert module.status.calls == {"aot": 2, "eager": 2}


def in_double(model):
    model.double()
    return {name: tensor.double() for name, tensor in call_of(3, 9).items()}


def weights_in_double(model):
    model.up = torch.nn.Linear(16, 32).double()
    model.down = torch.nn.Linear(32, 16).double()
    model.shift = model.shift.double()
    return {name: tensor.double() for name, tensor in call_of(3, 9).items()}


def in_training(model):
    model.train()
    return call_of(3, 9)


def with_a_hook(model):
    model.up.register_forward_hook(lambda _module, _args, output: output + 1)
    return call_of(3, 9)


def with_a_global_hook(model):
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    HANDLES.append(handle)
    return call_of(3, 9)


HANDLES = []


@pytest.fixture(autouse=True)
def no_global_hooks():
    yield
    while HANDLES:
        HANDLES.pop().remove()


def with_a_parametrization(model):
    torch.nn.utils.parametrizations.weight_norm(model.up)
    return call_of(3, 9)


def transposed_in_place(model):
    model.up.weight.data = model.up.weight.data.t().contiguous().t()
    return call_of(3, 9)


def another_child(model):
    model.up = torch.nn.Sequential(torch.nn.Linear(16, 32))
    return call_of(3, 9)


def children_elsewhere(model):
    vars(model)["_modules"] = {**model._modules, "up": torch.nn.Linear(16, 32)}
    return call_of(3, 9)


def another_forward(model):
    original = model.down.forward
    model.down.forward = lambda x: original(x) + 1
    return call_of(3, 9)


def another_parameter(model):
    model.up.register_parameter("more", torch.nn.Parameter(torch.ones(3)))
    return call_of(3, 9)


@pytest.mark.parametrize(
    "change",
    [
        in_double,
        weights_in_double,
        in_training,
        with_a_hook,
        with_a_global_hook,
        with_a_parametrization,
        transposed_in_place,
        another_child,
        children_elsewhere,
        another_forward,
        another_parameter,
    ],
)
def test_a_model_that_became_another_is_served_as_it_is(loaded, change):
    model, module = loaded
    agrees(module, model, call_of(3, 9))
    agrees(module, model, change(model))
    assert module.status.calls == {"aot": 1, "eager": 1}


def test_parameters_that_lie_elsewhere_are_followed(loaded):
    model, module = loaded
    agrees(module, model, call_of(3, 9))
    vars(model.up)["_parameters"] = {
        name: torch.nn.Parameter(torch.randn_like(parameter)) for name, parameter in model.up.named_parameters()
    }
    agrees(module, model, call_of(3, 9))
    model.up.note = "written to, and nothing that is computed with"
    agrees(module, model, call_of(3, 9))
    assert module.status.calls == {"aot": 3}


def test_under_the_callers_autocast_the_model_serves(loaded):
    model, module = loaded
    call = call_of(3, 9)
    module(**call)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = module(**call)
        with torch.no_grad():
            expected = model(**call)
    assert torch.equal(got.scores, expected.scores)
    assert "torch.autocast" in module.status.fallbacks[0].reason
    module(**call)
    assert module.status.calls == {"aot": 2, "eager": 1}


def test_under_a_functional_transform_the_model_serves(loaded):
    model, module = loaded
    call = call_of(3, 9)
    module(**call)
    with torch.no_grad():
        got = torch.vmap(lambda factor: module(**call).scores * factor)(torch.ones(2))
        torch.testing.assert_close(got[1], model(**call).scores)
    assert "transform" in module.status.fallbacks[0].reason
    assert module.status.calls == {"aot": 1, "eager": 1}


def test_inference_mode_and_gradients(loaded):
    model, module = loaded
    with torch.inference_mode():
        agrees(module, model, call_of(2, 4))
    call = call_of(2, 4)
    call["x"].requires_grad_()
    assert not module(**call).scores.requires_grad


def test_ten_thousand_calls_in_four_threads_with_changing_weights(loaded):
    model, module = loaded
    faults, stop = [], threading.Barrier(4)
    process, resident = psutil.Process(), []

    def calls(seed, count):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            batch, length = (int(torch.randint(1, high, (1,), generator=generator)) for high in (40, 80))
            call = {"x": torch.randn(batch, length, 16, generator=generator), "mask": torch.ones(batch, length)}
            with torch.no_grad():
                expected = model(**call).scores
            if not torch.allclose(module(**call).scores, expected, rtol=1e-4, atol=1e-4):
                faults.append((batch, length))

    def in_thread(seed):
        torch.set_num_threads(1)
        for part in range(5):
            calls(seed + part, 500)
            if stop.wait() == 0:  # one of them changes the weights while the others wait
                resident.append(process.memory_info().rss)
                with torch.no_grad():
                    (change_in_place if part % 2 else change_the_data)(model)
            stop.wait()

    threads = [threading.Thread(target=in_thread, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    served = module.status.calls
    assert sum(served.values()) == 10_000
    assert served["aot"] > 5_000
    assert served["eager"] > 1_000
    assert resident[-1] - resident[0] < 64 << 20, "eager itself, in as many threads, grows by some 40 MiB"


IN_PRODUCTION = """
import sys, torch, warnings
sys.path.insert(0, {tests!r})
import models, autocompile
torch.manual_seed(0)
model = models.Scorer().eval()
module = autocompile.load({artifact!r}, model)
call = {{"x": torch.randn(3, 9, 16), "mask": torch.ones(3, 9)}}
with torch.no_grad():
    torch.testing.assert_close(module(**call).scores, model(**call).scores, rtol=1e-4, atol=1e-4)
status = module.status
aot = ("compile", "compile_placement", "linking", "noted_constants", "unpack", "write_constants")
packers = (*("aot." + name for name in aot), "explanations", "export")
foreign = ("optuna", "torch._inductor", "torch._dynamo", *("autocompile.runtime." + name for name in packers))
loaded = [m for m in foreign if m in sys.modules]
print(status.runtime, status.start, loaded, status.cache)
"""


def in_production(artifact, *, compiler=True, cache=None):
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache or artifact.parent / "empty")}
    if not compiler:
        environment.update(PATH=str(artifact.parent / "nothing"), CXX="")
    code = IN_PRODUCTION.format(tests=str(Path(models.__file__).parent), artifact=str(artifact))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=200, check=False
    )


def test_a_fresh_process_needs_no_compiler_and_imports_none(scorer):
    ran = in_production(scorer[1], compiler=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "aot load [] None"


def test_a_process_that_is_killed_while_it_serves_leaves_no_files(scorer, tmp_path):
    code = IN_PRODUCTION.format(tests=str(Path(models.__file__).parent), artifact=str(scorer[1]))
    code += "import os, signal\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout.startswith("aot load [] "), ran.stderr
    assert list(tmp_path.iterdir()) == []


def edited(artifact, tmp_path, **fields):
    """A copy of the artifact with another manifest."""
    target = tmp_path / "edited"
    subprocess.run(["cp", "-r", artifact, target], check=True)
    manifest = open_manifest(target)
    write_manifest(target, replace(manifest, **fields))
    return target


FOREIGN = {
    "torch": ({"torch": "1.0.0"}, "packed with torch 1.0.0, and this is"),
    "instructions": ({"instructions": ("avx2", "quantum1", "quantum2")}, "this processor lacks quantum1, quantum2"),
    "architecture": ({"architecture": "riscv64"}, "packed on riscv64, and this is"),
    "library": ({"library": "3.2"}, "packed with aot 3.2, and this is none"),
}


@pytest.mark.parametrize(("fields", "said"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_was_packed_for_another_machine_is_not_run(scorer, tmp_path, fields, said):
    model, artifact = scorer
    foreign = edited(artifact, tmp_path, requirements=replace(open_manifest(artifact).requirements, **fields))
    with pytest.warns(RuntimeWarning, match=said):
        module = autocompile.load(foreign, model)
    agrees(module, model, call_of(3, 9))
    assert (module.status.runtime, module.status.absences[0].serving) == ("eager", AHEAD)
    assert said in module.status.absences[0].reason
    with pytest.raises(InvalidRecommendation, match=said):
        autocompile.load(foreign, model, on_mismatch="error")


def test_a_model_with_weights_of_other_shapes_is_served_as_it_is(scorer):
    other = models.Scorer(width=8).eval()
    with pytest.warns(RuntimeWarning, match="up.weight is 16x8, was 32x16"):
        module = autocompile.load(scorer[1], other)
    agrees(module, other, call_of(3, 9, width=8))
    assert module.status.runtime == "eager"


def test_a_program_that_cannot_be_loaded_is_said(scorer, tmp_path):
    broken = edited(scorer[1], tmp_path)
    manifest = open_manifest(broken)
    (program,) = manifest.programs
    for name in package_of(program).code_files:
        (broken / program.directory / name).write_bytes(b"not a package")
    files = tuple(entry_for(broken, entry.path) for entry in manifest.files)
    write_manifest(broken, replace(manifest, files=files))
    with pytest.raises(InvalidArtifact, match="its program cannot be loaded"):
        autocompile.load(broken, scorer[0])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"code": "elsewhere"}, "names elsewhere, which is not one of its files"),
        ({"code_files": ["code/elsewhere.so"]}, "names code/elsewhere.so, which is not one of its files"),
        ({"code": None}, "its record cannot be read: Expected `str`, got `null`"),
        ({"weights": 3}, "its record cannot be read: Expected `array`, got `int`"),
        ({"weights": [{"name": "up.weight", "path": "up.weight", "dtype": "odd", "shape": [], "stride": []}]}, "odd"),
    ],
    ids=["strange code", "strange file", "no code", "no weights", "odd dtype"],
)
def test_a_program_whose_record_cannot_be_read_is_said(scorer, tmp_path, fields, said):
    (program,) = open_manifest(scorer[1]).programs
    broken = edited(scorer[1], tmp_path, programs=(replace(program, own={**program.own, **fields}),))
    with pytest.raises(InvalidArtifact, match=said) as raised:
        autocompile.load(broken, scorer[0])
    assert str(raised.value).startswith(f"{broken}: ")
    assert raised.value.remedy == "tune it again"


def test_what_cannot_be_built_where_it_is_not_packed_is_served_eager(scorer, tmp_path, monkeypatch):
    model, artifact = scorer
    # As if it did not say that it compiles for calls that it knows.
    monkeypatch.setattr(type(kind(AHEAD.runtime)), "compiles", None)
    serving = Serving(AHEAD.runtime, "none")
    unpacked = edited(artifact, tmp_path, plan=Plan(AHEAD.runtime), serving=serving, programs=(), files=())
    with pytest.warns(RuntimeWarning, match="cannot be built here: nothing can be compiled ahead without a call"):
        module = autocompile.load(unpacked, model)
    agrees(module, model, call_of(3, 9))
    assert module.status.runtime == "eager"
    assert "without a call to compile for" in module.status.absences[0].reason


@pytest.mark.parametrize("fields", [{"serving": Serving("nonesuch", "load")}, {"serving": Serving("nonesuch", "none")}])
def test_a_runtime_that_is_not_there_is_a_mismatch(scorer, tmp_path, fields):
    model, artifact = scorer
    elsewhere = edited(artifact, tmp_path, plan=Plan("nonesuch"), **fields)
    for fallback in ("eager", "jit"):
        with pytest.warns(RuntimeWarning, match="there is no runtime 'nonesuch'; install it"):
            module = autocompile.load(elsewhere, model, fallback=fallback)
        agrees(module, model, call_of(3, 9))
        assert module.status.runtime == "eager"
    with pytest.raises(InvalidRecommendation, match="there is no runtime 'nonesuch'"):
        autocompile.load(elsewhere, model, on_mismatch="error")


def test_what_a_runtime_lacks_here_is_a_mismatch(scorer, monkeypatch):
    model, artifact = scorer
    monkeypatch.setattr(Kind, "lacks", lambda _self, _device_type: "its driver is not there")
    with pytest.warns(RuntimeWarning, match="its driver is not there; it is served eager"):
        module = autocompile.load(artifact, model)
    agrees(module, model, call_of(3, 9))
    with pytest.raises(InvalidRecommendation, match="its driver is not there"):
        autocompile.load(artifact, model, on_mismatch="error")


def test_a_runtime_whose_library_is_missing_is_a_mismatch(scorer, monkeypatch):
    model, artifact = scorer
    monkeypatch.setitem(building._CLOSED, AHEAD.runtime, "its library cannot be imported (no module); install it")
    with pytest.warns(RuntimeWarning, match="its library cannot be imported"):
        module = autocompile.load(artifact, model)
    agrees(module, model, call_of(3, 9))
    with pytest.raises(InvalidRecommendation, match="its library cannot be imported"):
        autocompile.load(artifact, model, on_mismatch="error")


def test_another_configuration_whose_runtime_is_not_there_is_served_eager(scorer, tmp_path):
    model, artifact = scorer
    one = Estimate(1.0, 1.0, 1.0)
    served = (
        Served(AHEAD, "packed", open_manifest(artifact).plan, 5.0, 0.001, one),
        Served(Serving("nonesuch", "none"), "nonesuch", Plan("nonesuch"), 0.0, 0.01, one),
    )
    module = autocompile.load(
        edited(artifact, tmp_path, served=served, envelope=(Segment("nonesuch", 1, None),)), model, calls=10
    )
    agrees(module, model, call_of(3, 9))
    assert module.status.runtime == "eager"
    assert "there is no runtime 'nonesuch'" in module.status.absences[0].reason


def test_wrong_arguments_of_load_are_said(scorer):
    model, artifact = scorer
    with pytest.raises(UsageError, match=r"the model is missing; call load\(path, model\)"):
        autocompile.load(artifact)
    wrong_options = [{"on_mismatch": "ignore"}, {"fallback": "luck"}, {"calls": 0}, {"digest": "x"}]
    for wrong in (*wrong_options, {"weight_check": "none"}, {"arrays": "jax"}):
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            autocompile.load(artifact, model, **wrong)


COMPILES_HERE = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


@COMPILES_HERE
def test_few_calls_are_served_eager(scorer, tmp_path):
    one = Estimate(1.0, 1.0, 1.0)
    winner = compiled(options={"freezing": True})
    served = (
        Served(AHEAD, "packed", open_manifest(scorer[1]).plan, 5.0, 0.001, one),
        Served(COMPILING, "inductor freezing=True", winner, 1.0, 0.002, one),
        Served(AS_IT_IS, "eager", Plan(), 0.0, 0.01, one),
    )
    known = edited(scorer[1], tmp_path, served=served)
    assert autocompile.load(known, scorer[0], calls=10).status.runtime == "eager"
    assert autocompile.load(known, scorer[0], calls=100_000).status.runtime == "aot"
    between = autocompile.load(known, scorer[0], calls=1000).status
    assert (between.start, between.label) == ("compile", "inductor freezing=True")
    assert "for 1,000 calls inductor freezing=True is preferred, start-up included" in between.absences[0].reason


def test_for_how_many_calls_what_is_served_is_as_the_verdict_has_it(scorer, tmp_path):
    """The envelope decides, even where a line alone would have it otherwise: eager is simpler, and stays for longer."""
    from autocompile.core.envelope import Segment
    from autocompile.core.estimate import Estimate
    from autocompile.core.manifest import Served

    one = Estimate(1.0, 1.0, 1.0)
    served = (
        Served(AHEAD, "inductor", open_manifest(scorer[1]).plan, 0.01, 0.001, one),
        Served(AS_IT_IS, "eager", Plan(), 0.0, 0.01, one),
    )
    envelope = (Segment("eager", 1, 1999), Segment("inductor, packed", 2000, None))
    known = edited(scorer[1], tmp_path, served=served, envelope=envelope)
    few = autocompile.load(known, scorer[0], calls=1999).status
    assert (few.runtime, few.absences[0].reason) == ("eager", "for 1,999 calls eager is preferred, start-up included")
    assert autocompile.load(known, scorer[0], calls=2000).status.runtime == "aot"
    assert autocompile.load(known, scorer[0]).status.runtime == "aot"


@COMPILES_HERE
def test_the_fallback_may_compile(scorer):
    model, artifact = scorer
    module = autocompile.load(artifact, model, fallback="jit")
    agrees(module, model, call_of(33, 4))
    assert module.status.calls == {"inductor": 1}


def as_served(serving, startup_s, **fields):
    return Served(serving, "inductor", COMPILED, startup_s, 0.01, Estimate(1.0, 1.0, 1.0), **fields)


def test_what_compiles_at_the_first_call_says_so_where_it_is_loaded(scorer, tmp_path):
    model, artifact = scorer
    absences = (Absence(AHEAD, "it does not export"), Absence(CARRIED, "2 s of the budget left"))
    parts = {
        "plan": COMPILED,
        "serving": COMPILING,
        "programs": (),
        "files": (),
        "absences": absences,
        "served": (as_served(COMPILING, 24.2),),
    }
    jit = edited(artifact, tmp_path, **parts)
    with pytest.warns(RuntimeWarning) as caught:
        module = autocompile.load(jit, model)
    (warning,) = (warning for warning in caught if warning.category is RuntimeWarning)
    assert warning.filename == __file__
    said = str(warning.message)
    assert "compiles at the first call, about 24.2 s: it was not packed (" in said
    assert "(aot: it does not export; inductor from its cache: 2 s" in said
    assert said.endswith("call it once before production, or load it with background=True")
    assert "compiles at the first call, about 24.2 s" in module.status.notes
    waiting = autocompile.load(jit, model, background=True)
    assert "compiles in the background, about 24.2 s" in waiting.status.notes


def test_a_fallback_that_compiles_says_for_how_long(scorer, tmp_path):
    model, artifact = scorer
    requirements = replace(open_manifest(artifact).requirements, torch="1.0.0")
    foreign = edited(artifact, tmp_path, requirements=requirements, served=(as_served(COMPILING, 24.2),))
    with pytest.warns(
        RuntimeWarning, match=r"it is served by inductor, which compiles at the first call, about 24.2 s; tune"
    ):
        module = autocompile.load(foreign, model, fallback="jit")
    assert module.status.start == "compile"


def test_a_carried_cache_tells_what_its_start_takes_and_whether_it_was_timed(scorer, tmp_path):
    model, artifact = scorer
    served = (as_served(CARRIED, 4.2, expected=True), as_served(COMPILING, 24.2))
    carried = edited(artifact, tmp_path, plan=COMPILED, serving=CARRIED, programs=(), files=(), served=served)
    assert autocompile.load(carried, model).status.notes == (
        "starts the compiler at the first call, about 4.2 s",
        "packed and verified, but not timed after loading",
    )


@pytest.mark.parametrize("serving", [AHEAD, CARRIED], ids=str)
def test_what_is_packed_is_compared_with_the_runs_own_reference(runner, tmp_path, serving):
    laboratory = Laboratory(runner, tmp_path)
    torch.manual_seed(0)
    laboratory.prepare(models.Stack().eval(), torch.randn(4, 32), preload=True)
    reference = laboratory.reference
    laboratory.prepare(models.Stack().eval(), torch.randn(4, 32), preload=True)
    laboratory.reference = reference
    failure = laboratory.pack(COMPILED, serving)
    assert isinstance(failure, Failure)
    assert "is wrong: output is off by" in failure.message


def test_measured_as_loaded_it_is_right_and_all_its_own(scorer, runner, tmp_path_factory):
    laboratory = Laboratory(runner, tmp_path_factory.mktemp("measured"))
    laboratory.prepare(scorer[0], [call_of(8, 5), call_of(8, 12)], preload=True)
    measured = laboratory.trial(COMPILED, artifact=str(scorer[1]))
    assert isinstance(measured, Measurement), measured
    assert measured.startup.build_s > 0
    assert measured.accuracy.error < measured.accuracy.limit
    laboratory.prepare(scorer[0], call_of(40, 5), preload=True)
    refused = laboratory.trial(COMPILED, artifact=str(scorer[1]))
    assert isinstance(refused, Failure)
    assert "not served by it" in refused.message


def test_its_start_is_a_job_of_its_own(scorer, runner, tmp_path_factory):
    laboratory = Laboratory(runner, tmp_path_factory.mktemp("started"))
    laboratory.spool(scorer[0], [call_of(8, 5), call_of(8, 12)])
    task = FreshTask(laboratory.workload, COMPILED, str(scorer[1]))
    started = reply_to(runner, task, Limits(120.0), cache="start")
    assert isinstance(started, FreshStart), started
    assert started.serving == AHEAD
    assert 0 < started.startup.build_s < started.phases_s["start-up"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports
def test_what_load_serves_otherwise_from_the_start_is_not_measured_as_the_artifact(scorer):
    from autocompile.trial.pack.loaded import LoadedArtifact, ServedOtherwise

    model, sample = copy.deepcopy(scorer[0]), call_of(8, 5)
    held = LoadedArtifact(str(scorer[1]), model, threads=0)
    held(**sample)
    held.check_served()
    model.up.weight = torch.nn.Parameter(model.up.weight.detach().t().contiguous().t())
    with pytest.warns(RuntimeWarning, match="weights differ"):
        otherwise = LoadedArtifact(str(scorer[1]), model, threads=0)
    otherwise(**sample)
    with pytest.raises(ServedOtherwise, match="it was served by eager, not by aot: the model's weights differ"):
        otherwise.check_served()


def test_the_carried_cache_hits_and_needs_a_compiler(runner, tmp_path):
    laboratory = Laboratory(runner, tmp_path)
    torch.manual_seed(0)
    laboratory.prepare(models.Scorer().eval(), call_of(3, 9), preload=True)
    artifact = laboratory.pack(COMPILED, CARRIED)
    ran = in_production(artifact, cache=tmp_path / "fresh")
    assert ran.returncode == 0, ran.stderr
    _runtime, start, rest = ran.stdout.split(" ", 2)
    assert start == "cache"
    assert "misses=0" in rest
    assert "hits=0" not in rest
    hidden = in_production(artifact, compiler=False, cache=tmp_path / "other")
    assert hidden.returncode == 0, hidden.stderr
    assert hidden.stdout.startswith("eager")
    assert "there is no C++ compiler" in hidden.stderr


@COMPILES_HERE
def test_in_the_background_no_call_waits_or_fails(scorer, tmp_path):
    model, artifact = scorer
    jit = edited(artifact, tmp_path, plan=COMPILED, serving=COMPILING, programs=(), files=())
    module = autocompile.load(jit, model, background=True)
    call = call_of(4, 6)
    agrees(module, model, call)
    assert module.status.calls == {"eager": 1}
    deadline = time.monotonic() + 120
    while "inductor" not in module.status.calls and time.monotonic() < deadline:
        agrees(module, model, call)
        time.sleep(0.05)
    assert "inductor" in module.status.calls


def test_one_dropout_in_training_mode_is_seen(loaded):
    model, module = loaded
    model.dropout.train()
    torch.manual_seed(0)
    module(**call_of(3, 9))
    assert module.status.calls == {"eager": 1}
    assert "training" in module.status.fallbacks[0].reason


def test_tied_weights_that_come_apart_are_seen(laboratory):
    model = models.Tied().eval()
    laboratory.prepare(model, torch.randn(4, 8), preload=True)
    module = autocompile.load(laboratory.pack(COMPILED), model)
    x = torch.randn(4, 8)
    with torch.no_grad():
        model.one.weight.mul_(2)
        torch.testing.assert_close(module(x), model(x))
        model.other.weight = torch.nn.Parameter(torch.randn(8, 8))
        torch.testing.assert_close(module(x), model(x))
    assert module.status.calls == {"aot": 1, "eager": 1}
    assert "were one tensor, but are now two" in module.status.fallbacks[0].reason


def test_it_goes_on_when_the_artifact_is_gone(scorer, tmp_path):
    artifact = edited(scorer[1], tmp_path)
    model = copy.deepcopy(scorer[0])
    module = autocompile.load(artifact, model)
    subprocess.run(["rm", "-r", artifact], check=True)
    with torch.no_grad():
        change_by_assignment(model)
    agrees(module, model, call_of(3, 9))
    assert module.status.calls == {"aot": 1}


def test_a_compiler_that_fails_leaves_eager(scorer, tmp_path, monkeypatch):
    model, artifact = scorer
    jit = edited(artifact, tmp_path, serving=COMPILING, programs=(), files=(), plan=compiled(backend="no such backend"))
    with monkeypatch.context() as patched:
        patched.setattr("torch.compile", lambda *_args, **_kwargs: failing)
        with pytest.warns(RuntimeWarning, match="it was not packed"):
            module = autocompile.load(jit, model)
    for _ in range(2):
        agrees(module, model, call_of(3, 9))
    assert module.status.calls == {"eager": 2}
    assert "compiling failed: RuntimeError: no" in module.status.fallbacks[0].reason


def failing(*_args, **_kwargs):
    raise RuntimeError("no")


def test_weights_in_another_layout_stay_the_models(laboratory):
    model = models.Convolution().eval()
    laboratory.prepare(model, torch.randn(2, 3, 9, 9), preload=True)
    artifact = laboratory.pack(replace(compiled(), memory_format="channels_last"))
    module = autocompile.load(artifact, model)
    for _ in range(2):
        x = torch.randn(5, 3, 9, 9)
        with torch.no_grad():
            torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-4)
            model.first.weight.mul_(2)
    assert module.status.calls == {"aot": 2}


@pytest.fixture(scope="module")
def convolution(runner, tmp_path_factory):
    laboratory = Laboratory(runner, tmp_path_factory.mktemp("convolution"))
    model = models.Convolution().eval()
    laboratory.prepare(model, torch.randn(2, 3, 9, 9), preload=True)
    return model, laboratory.pack(COMPILED)


@pytest.mark.parametrize(
    ("plan", "serving"),
    [
        (Plan(memory_format="channels_last"), AS_IT_IS),
        (replace(compiled(), memory_format="channels_last"), COMPILING),
        (compiled(options={"freezing": True}), COMPILING),
    ],
    ids=["eager in another memory format", "compiled in another memory format", "frozen"],
)
@pytest.mark.filterwarnings("ignore:.*it was not packed:RuntimeWarning")
def test_what_copies_weights_serves_until_they_change(convolution, tmp_path, plan, serving):
    model = copy.deepcopy(convolution[0])
    artifact = edited(convolution[1], tmp_path, plan=plan, serving=serving, programs=(), files=())
    module = autocompile.load(artifact, model)
    assert any("it has a copy of weights" in note for note in module.status.notes)
    x = torch.randn(5, 3, 9, 9)
    for _ in range(2):
        torch.testing.assert_close(module(x), model(x).detach(), rtol=1e-4, atol=1e-4)
    assert module.status.fallbacks == ()
    with torch.no_grad():
        model.first.weight.mul_(2)
    torch.testing.assert_close(module(x), model(x).detach())
    assert module.status.fallbacks[0].reason == (
        "the weights are not those that were there when it was built: first.weight differs"
    )


@pytest.mark.filterwarnings("ignore:.*it was not packed:RuntimeWarning")
def test_weights_that_are_loaded_before_the_first_call_are_frozen(convolution, tmp_path):
    plan = compiled(options={"freezing": True})
    artifact = edited(convolution[1], tmp_path, plan=plan, serving=COMPILING, programs=(), files=())
    model, x = copy.deepcopy(convolution[0]), torch.randn(5, 3, 9, 9)
    module = autocompile.load(artifact, model)
    model.load_state_dict({name: tensor * 2 for name, tensor in model.state_dict().items()})
    for _ in range(2):
        torch.testing.assert_close(module(x), model(x).detach(), rtol=1e-4, atol=1e-4)
    assert module.status.calls == {"inductor": 2}


def test_a_function_without_weights_needs_no_model(laboratory):
    laboratory.prepare(torch.nn.functional.softplus, torch.randn(3, 4), preload=True)
    artifact = laboratory.pack(COMPILED)
    module = autocompile.load(artifact)
    torch.testing.assert_close(module(torch.ones(3, 4)), torch.nn.functional.softplus(torch.ones(3, 4)))
    with pytest.raises(UsageError, match=r"has shape \(3, 5\).*, and there is no model to serve it"):
        module(torch.ones(3, 5))
    # Nothing served it, so it is none of the fallback's calls.
    assert (module.status.calls, module.status.fallbacks) == ({"aot": 1}, ())


UNSUPPORTED = {
    "writes a buffer": (models.Counting, torch.ones(3), "it writes into buffer calls when called"),
    "adds an item": (
        lambda: models.adds_to_its_argument,
        ({"x": torch.ones(3)},),
        "it adds input[0][0]['twice'] to its arguments when called, which a compiled program does not do",
    ),
    "takes a global": (lambda: models.takes_a_global, torch.ones(4, 4), "a tensor from outside of itself"),
    "an output of its own": (
        lambda: models.returns_a_class_of_its_own,
        torch.ones(4, 4),
        "its output contains an object of class Answer",
    ),
}


@pytest.mark.parametrize(("make", "inputs", "said"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_what_cannot_be_packed_ahead_is_said(laboratory, make, inputs, said):
    laboratory.prepare(make(), inputs, preload=True)
    failure = laboratory.pack(COMPILED)
    assert isinstance(failure, Failure)
    assert said in failure.message


def test_independent_samples_are_proved():
    stack = models.Stack().eval()
    assert batch_axis(Call(stack), Sample((torch.randn(4, 32),), {})) == {(0, 0)}
    assert batch_axis(Call(stack), Sample((torch.randn(1, 32),), {})) == frozenset(), "one sample proves nothing"
    torch.manual_seed(0)
    training = models.BatchStatistics().train()
    assert batch_axis(Call(training), Sample((torch.randn(8, 4),), {})) == frozenset()
    assert batch_axis(Call(models.BatchStatistics().eval()), Sample((torch.randn(8, 4),), {})) == {(0, 0)}
    assert batch_axis(Call(lambda x: x.roll(1, 0)), Sample((torch.randn(8, 4),), {})) == frozenset()
    assert batch_axis(Call(lambda x: x.sum()), Sample((torch.randn(8, 4),), {})) == frozenset()
    assert batch_axis(Call(lambda x, y: x @ y), Sample((torch.randn(8, 8), torch.randn(8, 8)), {})) == frozenset()


def test_axes_that_vary_together_are_one():
    samples = [Sample((), call_of(4, length)) for length in (5, 9)]
    (axis,) = free_axes(samples, frozenset())
    assert (axis.places, axis.seen, axis.low, axis.high) == ({(0, 1), (1, 1)}, (5, 9), 2, 64)
    assert free_axes(samples[:1], frozenset()) == ()
    longer = resized(samples[0], axis.places, 12)
    assert longer.kwargs["x"].shape == (4, 12, 16)
    assert torch.equal(longer.kwargs["x"][:, 5:10], samples[0].kwargs["x"])


def test_status_is_json(loaded):
    _model, module = loaded
    from autocompile.core.serde import to_json

    assert json.loads(to_json(module.status))["runtime"] == "aot"
