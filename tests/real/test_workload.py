import functools
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections import UserDict
from functools import partial

import models
import pytest
import torch
from torch import nn

import autocompile.api
from autocompile.core import job
from autocompile.core.errors import InvalidWorkload
from autocompile.core.plan import Plan
from autocompile.runtime.building import build
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.profile.blocks import repeated_blocks
from autocompile.workload.call import Call
from autocompile.workload.capture.script import is_own, workload_from_script
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.samples import MAX_SAMPLES, Sample, as_samples, clone, signatures_of
from autocompile.workload.spool import spool, unspool

X = torch.randn(2, 32)


def test_the_forms_of_inputs():
    assert as_samples(X)[0].args[0] is X
    assert len(as_samples((X, 3))[0].args) == 2
    assert as_samples({"x": X})[0].kwargs["x"] is X
    assert as_samples(UserDict(x=X))[0].kwargs["x"] is X
    assert len(as_samples([X, (X,), {"x": X}])) == 3
    assert len(as_samples([X] * 1000)) == MAX_SAMPLES


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "inputs: an empty list holds no sample"),
        ("text", "inputs: cannot call the model with a str"),
        ([X, 3], r"inputs\[1\]: cannot call the model with a int"),
        ((1, 2), "inputs: contains no tensor"),
        (iter([X]), "cannot call the model with a list_iterator"),
    ],
)
def test_inputs_that_cannot_be_used_are_named(inputs, said):
    with pytest.raises(InvalidWorkload, match=said):
        as_samples(inputs)


def test_signatures_are_weighted_by_their_share():
    signatures = signatures_of(as_samples([torch.ones(2), torch.ones(3), torch.ones(2), torch.ones(2)]))
    assert [(s.tensors[0].shape, s.weight) for s in signatures] == [((2,), 0.75), ((3,), 0.25)]


def test_a_workload_survives_the_journey(tmp_path):
    model = models.Stack().eval()
    workload = spool(model, {"x": X}, tmp_path)
    again, samples = unspool(workload)
    assert torch.equal(again(**samples[0].kwargs), model(X))
    assert workload.is_module
    assert not workload.has_conv
    assert workload.parameter_count == sum(p.numel() for p in model.parameters())
    assert "models" in workload.modules


def test_classes_without_a_module_travel_by_value(tmp_path):
    namespace = {"__name__": "__main__"}
    exec("import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n", namespace)
    workload = spool(namespace["Net"](), X, tmp_path)
    assert "__main__" not in workload.modules


class Locked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 2)
        self.inner.guard = {"lock": threading.Lock()}

    def forward(self, x):
        return self.inner(x)


def test_a_torchscript_program_is_refused_with_the_way_out(tmp_path):
    with warnings.catch_warnings(action="ignore"):  # torch deprecates TorchScript
        traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(InvalidWorkload, match="give the module that it was scripted or traced from"):
        spool(traced, torch.ones(1, 2), tmp_path)


def test_what_cannot_be_pickled_is_named_down_to_the_attribute(tmp_path):
    with pytest.raises(InvalidWorkload, match=r"model\.inner\.guard\['lock'\]: cannot be sent to another process"):
        spool(Locked(), X, tmp_path)
    lock = threading.Lock()

    def closing_over(x):
        return (x, lock)[0]

    with pytest.raises(InvalidWorkload, match=r"model.*lock.*cannot be sent"):
        spool(closing_over, X, tmp_path)
    with pytest.raises(InvalidWorkload, match="a int cannot be called"):
        spool(3, X, tmp_path)


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrized_modules_travel(tmp_path, norm):
    torch.manual_seed(0)
    layer = nn.Linear(32, 8)
    model = nn.Sequential(norm(layer), nn.ReLU(), norm(nn.Linear(8, 4), name="weight")).eval()
    names = list(model.state_dict())
    workload = spool(model, X, tmp_path / "workload")
    arrived, (sample,) = unspool(workload)
    assert list(arrived.state_dict()) == names == list(model.state_dict())
    with torch.no_grad():
        assert torch.equal(arrived(*sample.args), model(X))
    assert type(arrived[0]).__name__ == type(model[0]).__name__ == "ParametrizedLinear"
    assert identity_of(arrived) == identity_of(model)
    nn.utils.parametrize.remove_parametrizations(arrived[0], "weight")
    torch.testing.assert_close(arrived(X), model(X))


def test_blocks_are_found_outermost_and_once():
    assert [b.paths for b in repeated_blocks(models.Stack())] == [("layers.0", "layers.1", "layers.2")]
    assert repeated_blocks(models.Convolution()) == ()
    nested = nn.ModuleList(nn.ModuleList([nn.ReLU(), models.Stack().layers[0]]) for _ in range(2))
    assert [b.paths for b in repeated_blocks(nn.ModuleDict({"layers": nested}))] == [("layers.0.1", "layers.1.1")]
    assert repeated_blocks(torch.sin) == ()
    shared = models.Block(8)
    twice = nn.ModuleDict({"one": shared, "list": nn.ModuleList([shared])})
    assert repeated_blocks(twice) == ()
    assert repeated_blocks(nn.Sequential(shared, shared)) == ()
    mixed = nn.Sequential(models.Block(8), models.Block(16), models.Block(8))
    assert [b.paths for b in repeated_blocks(mixed)] == [("0", "2")]


def test_identities_follow_structure_and_code_not_weights():
    assert identity_of(models.Stack()) == identity_of(models.Stack())
    assert identity_of(models.Stack()) != identity_of(models.Stack(depth=4))
    assert identity_of(models.sleeps) != identity_of(models.segfaults)
    assert identity_of(nn.Linear(2, 2)) != identity_of(nn.Linear(2, 2).double())


def test_building_leaves_the_model_as_it_is_and_shares_its_weights():
    model = models.Convolution().eval()
    before = {name: (p.data_ptr(), p.stride()) for name, p in model.named_parameters()}
    image = torch.randn(1, 3, 8, 8)
    for plan in (
        compiled(scope=("first",), backend="eager"),
        Plan(memory_format="channels_last"),
        Plan(autocast="bfloat16"),
    ):
        built = build(Call(model), plan, isolate=True)
        with torch.no_grad():
            torch.testing.assert_close(built(image), model(image), rtol=0.05, atol=0.05)
        assert built(image).dtype == torch.float32
        assert not built(image).requires_grad
        assert {name: (p.data_ptr(), p.stride()) for name, p in model.named_parameters()} == before
    scoped = build(Call(model), compiled(scope=("first",), backend="eager"))
    with torch.no_grad():
        model.second.bias.add_(1.0)
        torch.testing.assert_close(scoped(image), model(image))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "defines no `model` and no `inputs`; define `model` and `inputs`, or a function"),
        ("model = abs\n", "defines no `inputs`"),
        ("def workload(): return 3\n", r"workload\(\) must return \(model, inputs\)"),
        ("\n\nraise ValueError('bad day')\n", r"script.py: raised ValueError: bad day \(script.py:3 in <module>\)"),
        ("def workload():\n    return 1 / 0\n", r"ZeroDivisionError: division by zero \(script.py:2 in workload\)"),
        ("def f(:\n", r"raised SyntaxError: .*\(script.py:1\)"),
        ("def f(:\n", r"raised SyntaxError: invalid syntax \("),
        ("import sys; sys.exit(5)\n", r"script.py: exited with status 5; run `python .*script.py`"),
        ("import sys; sys.exit('no data')\n", r'script.py: exited with status 1: "no data"; run'),
        ("raise SystemExit\n", "exited with status 0 before it defined a workload; define `model` and `inputs`"),
        (
            "import sys\ndef workload():\n    print('no', 'data', file=sys.stderr)\n    sys.exit(3)\n",
            'script.py: exited with status 3: "no data"; run',
        ),
        (
            "import argparse\ndef workload(): argparse.ArgumentParser().parse_args(['--x'])\n",
            'status 2: "script.py: error: unrecognized arguments: --x"; give its arguments after `--`',
        ),
    ],
)
def test_scripts_with_a_fault_name_it(tmp_path, text, said):
    path = tmp_path / "script.py"
    path.write_text(text)
    with pytest.raises(InvalidWorkload, match=said):
        workload_from_script(path)


def test_a_script_sees_its_name_and_its_arguments_and_may_end_well(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import argparse, sys\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--size', type=int, default=3)\n"
        "inputs, model = parser.parse_args().size, sys.argv[0]\nsys.exit(0)\n"
    )
    before = sys.argv, sys.stderr
    model, inputs, _training = workload_from_script(path)
    assert (model.endswith("script.py"), inputs) == (True, 3)
    assert workload_from_script(path, ("--size", "5"))[1] == 5
    assert (sys.argv, sys.stderr) == before
    path.write_text("raise ValueError\n")
    with pytest.raises(InvalidWorkload, match=r"run `python .*script.py --data 'a b'` to see the full output"):
        workload_from_script(path, ("--data", "a b"))


def test_a_criterion_and_a_function_of_a_common_name_make_no_training(tmp_path):
    path = tmp_path / "script.py"
    text = "import torch\nfrom itertools import accumulate\nmodel = torch.nn.Linear(3, 2)\ninputs = torch.ones(5, 3)\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
    path.write_text(text + "loss = torch.nn.MSELoss()\n")
    assert workload_from_script(path)[2] is None
    path.write_text(text + "def loss(model, batch): return model(batch).sum()\nclip_norm = 2.0\n")
    training = workload_from_script(path)[2]
    assert (training.accumulate, training.clip_norm) == (1, 2.0)


def test_a_script_is_not_run_as_main_and_may_import_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "neighbour_of_script.py").write_text("def model(x): return x\n")
    path = tmp_path / "script.py"
    path.write_text(
        "import torch\nfrom neighbour_of_script import model\ninputs = torch.ones(2)\nassert __name__ != '__main__'\n"
    )
    model, inputs, _training = workload_from_script(path)
    assert model(inputs) is inputs


def made(number):
    def closure(x):
        return x * number

    return closure


class Attributed(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        return x * self.count


def test_identities_follow_attributes_closures_and_helpers():
    assert identity_of(Attributed(2)) != identity_of(Attributed(200))
    assert identity_of(made(1)) != identity_of(made(100))
    assert identity_of(made(1)) == identity_of(made(1))
    assert identity_of(partial(torch.softmax, dim=0)) != identity_of(partial(torch.softmax, dim=1))
    sources = ["def helper(x): return x + 1", "def helper(x): return x - 1"]
    spaces = [{}, {}]
    for source, space in zip(sources, spaces, strict=True):
        exec(f"{source}\ndef model(x): return helper(x)", space)
    assert identity_of(spaces[0]["model"]) != identity_of(spaces[1]["model"])


def test_code_behind_a_cache_counts():
    def cached(number, cache):
        @cache
        def scale(x):
            return x + number

        class Net(nn.Module):
            twice = functools.partialmethod(lambda self, x, by: scale(x) * by + number, by=2)
            squared = cache(lambda self, x: x * x + number)

            def forward(self, x):
                return {"scale": scale, "twice": self.twice, "squared": self.squared}[self.way](x)

        return Net

    for cache in (functools.cache, functools.lru_cache(maxsize=3)):
        for number in (1, 2):
            found = identity_of(cached(number, cache)())
            names = {name.rpartition(".")[2] for name in found.code}
            assert {"scale", "forward", "<lambda>"} <= names
            assert found.values["number"] == str(number)


def test_copies_of_a_call_keep_layout_and_sharing():
    base = torch.arange(12.0).reshape(3, 4)
    sample = Sample((base, base[0], base.t(), torch.ones(1, 4).expand(3, 4)), {})
    own = clone(sample)
    for one, other in zip(sample.args, own.args, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    own.args[0].add_(1)
    assert own.args[1][0] == 1.0
    assert base[0, 0] == 0.0


def test_frozen_weights_are_constants_of_the_program():
    plan = compiled(options={"freezing": True})
    code = (
        "import torch\n"
        "from torch._inductor.utils import run_and_get_code\n"
        "from autocompile.runtime.inductor.settings import compiled\n"
        "from autocompile.runtime.building import build\n"
        "from autocompile.workload.call import Call\n"
        "model = torch.nn.Linear(8, 8).eval()\n"
        f"built = build(Call(model), compiled(options={plan.settings['options']!r}))\n"
        "_output, (code,) = run_and_get_code(built, torch.ones(1, 8))\n"
        "assert '_frozen_param' in code\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


PRECISIONS = """
import sys, torch
from autocompile.core.serde import to_json
from autocompile.workload.settings import apply_settings, current_settings

before = current_settings()
{change}
after = current_settings()
assert before != after
apply_settings(before)
assert current_settings() == before
apply_settings(after)
assert current_settings() == after
print(after.matmul_precision or "by backend")
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("torch.set_float32_matmul_precision('high')", "high"),
        ("torch.backends.fp32_precision = 'tf32'", "by backend"),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "by backend"),
        ("torch.backends.mkldnn.matmul.fp32_precision = 'bf16'", "by backend"),
        ("torch.backends.cudnn.conv.fp32_precision = 'ieee'", "highest"),
        ("torch.backends.cudnn.deterministic = True", "highest"),
        ("torch.backends.cuda.enable_flash_sdp(False)", "highest"),
    ],
)
def test_precision_is_read_and_set_by_whichever_interface_the_user_took(change, told):
    code = PRECISIONS.format(change=change)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200)
    assert (ran.stdout.strip(), ran.returncode) == (told, 0), ran.stderr


def test_settings_of_the_users_process_travel(tmp_path):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        workload = spool(models.Stack(), X, tmp_path)
        torch.set_num_threads(threads)
        unspool(workload)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


def test_a_users_file_is_told_from_this_package_and_from_what_is_installed(tmp_path):
    assert is_own(__file__)
    assert is_own(str(tmp_path / "autocompile_script.py"))
    for module in (autocompile.api, job, torch.nn, sysconfig):
        assert not is_own(module.__file__), module
