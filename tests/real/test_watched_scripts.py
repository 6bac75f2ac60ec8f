"""Typical scripts that define no workload: what watching finds in them, and the messages if that is too little."""

import subprocess
import sys

import pytest
import torch
from laboratory import reply_to

from autocompile.core.job import CaptureTask, Limits, Watching
from autocompile.core.outcome import Failure
from autocompile.core.workload import Workload
from autocompile.runner.showing import shown_live
from autocompile.workload.spool import unspool

HEAD = """\
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.into, self.out = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x, scale=1.0):
        return self.out(self.into(x).relu()) * scale

class Encoder(nn.Sequential):
    pass

torch.manual_seed(0)
net = Net().eval()
"""
FRUITLESS = {
    "nothing": ("print('done')", "called no torch module in its own process; call the model there"),
    "no parameters": ("nn.ReLU()(torch.ones(2))", "calls no module that has parameters"),
    "raises": (
        "net(torch.ones(3, 4))\ndef load(): raise OSError('no disk')\nload()",
        "raised OSError: no disk (script.py:19 in load)",
    ),
    "ends itself": ("sys.exit('no data')", 'exited with status 1: "no data"; run'),
    "wants arguments": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()",
        "the following arguments are required: --data",
    ),
    "is of a package": ("from .config import WIDTH", "give its module's name, as in `autocompile tune -m"),
    "is a notebook": ("get_ipython().run_line_magic('time', '')", "that line is a notebook command and not Python"),
    "reads": ("name = input('name? ')", "reads standard input, which is empty while it is watched"),
    "trains by hand": (
        "for _ in range(3):\n    net(torch.ones(3, 4)).sum().backward()\n    net.out.bias.data -= net.out.bias.grad",
        "computes gradients (3 times), but no torch optimizer was seen to use them; define",
    ),
    "is called in its own way": (
        """
class Own(nn.Linear):
    def __call__(self, x):
        return self.forward(x)
own = Own(4, 2)
optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
own(torch.ones(3, 4)).sum().backward()
optimizer.step()
net(torch.ones(3, 4))
""",
        "for a module whose calls were seen before; those of a class with its own __call__ are not seen; define",
    ),
}


@pytest.fixture
def watch(runner, tmp_path):
    """Watch a script of this text."""

    def watched(text, *arguments, shows="", **watching):
        script = tmp_path / "script.py"
        script.write_text(HEAD + text + "\n")
        directory = tmp_path / "workload"
        task = CaptureTask(str(script), str(directory), arguments=arguments, watching=Watching(**watching), shows=shows)
        return reply_to(runner, task, Limits(120.0), cache="capture")

    return watched


@pytest.mark.parametrize(("text", "said"), FRUITLESS.values(), ids=FRUITLESS.keys())
def test_what_cannot_be_tuned_is_told_in_a_line(watch, text, said):
    reply = watch(text)
    assert isinstance(reply, Failure), reply
    assert said in reply.message
    assert "\n" not in reply.message


def test_every_kind_of_call_is_seen_by_its_share(watch):
    reply = watch(
        "if __name__ == '__main__':\n    with torch.no_grad():\n"
        "        for n in range(30):\n            net(torch.randn(2 if n % 3 else 5, 4), scale=2.0)"
    )
    assert isinstance(reply, Workload), reply
    assert {signature.tensors[0].shape: round(signature.weight, 1) for signature in reply.signatures} == {
        (5, 4): 0.3,
        (2, 4): 0.7,
    }
    entry = reply.script
    assert (entry.module, entry.calls, entry.whole, entry.with_gradients) == ("Net", 30, True, False)
    assert 0 < entry.share <= 1
    model, samples = unspool(reply)
    assert {tuple(sample.kwargs.items()) for sample in samples} == {(("scale", 2.0),)}
    assert model(*samples[0].args, **samples[0].kwargs).shape == (5, 2)
    assert "Net was called 30 times" in reply.notes[0]


def test_operators_are_intercepted_once_there_is_an_optimizer_but_not_in_calls_without_gradients(watch):
    reply = watch(
        "from torch.overrides import _get_current_function_mode\nclass Bare(Net):\n    def forward(self, x):\n"
        "        assert _get_current_function_mode() is None\n        return super().forward(x)\n"
        "assert _get_current_function_mode() is None\ntorch.optim.SGD(net.parameters())\n"
        "assert _get_current_function_mode() is not None\nwith torch.no_grad():\n    Bare()(torch.ones(1, 4))\n"
        "assert _get_current_function_mode() is not None"
    )
    assert isinstance(reply, Workload), reply


def test_arguments_main_and_files_beside_it_are_as_python_has_them(watch, tmp_path):
    (tmp_path / "beside.py").write_text("WIDTH = 6\n")
    reply = watch(
        "import __main__, beside, os\nassert __main__.Net is Net and os.path.samefile(__file__, sys.argv[0])\n"
        "assert sys.argv[1:] == ['--n', '3'], sys.argv\nNet(beside.WIDTH)(torch.ones(1, 4))",
        "--n",
        "3",
    )
    assert isinstance(reply, Workload), reply
    assert unspool(reply)[0].into.out_features == 6


@pytest.mark.parametrize("ends", ["watch-calls", "watch", "exit"])
def test_it_is_watched_until_enough_is_seen(watch, ends):
    forever = "try:\n    while True:\n        net(torch.ones(3, 4))\nexcept Exception:\n    raise SystemExit(3)"
    limits = {"watch-calls": {"calls": 7}, "watch": {"seconds": 0.5}, "exit": {}}[ends]
    reply = watch("net(torch.ones(3, 4))\nsys.exit(0)" if ends == "exit" else forever, **limits)
    assert isinstance(reply, Workload), reply
    assert reply.script.whole == (ends == "exit")
    if ends == "watch-calls":
        assert reply.script.calls == 7


def test_the_module_that_takes_the_time_is_taken_or_the_one_that_is_named(watch):
    both = (
        "encoder = Encoder(*(nn.Linear(256, 256) for _ in range(8)))\nwith torch.no_grad():\n    for _ in range(20):\n"
        "        encoder(torch.ones(64, 256)); net(torch.ones(3, 4))"
    )
    assert watch(both).script.module == "Encoder"
    for name in ("net", "Net"):
        assert watch(both, module=name).script.module == "Net"
    reply = watch(both, module="Decoder")
    assert isinstance(reply, Failure)
    assert "calls no module Decoder itself" in reply.message
    assert "name one that it calls: " in reply.message


def test_within_a_call_without_tensors_the_calls_of_other_modules_are_seen(watch):
    outer = (
        "import collections\nclass Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net = net\n    def forward(self, features):\n"
        "        features['out'] = self.net(features['x'])\n        return features\nouter = Outer()\n"
    )
    calls = "for n in (3, 5, 3):\n    outer(collections.UserDict(x=torch.ones(n, 4)))"
    reply = watch(outer + f"with torch.no_grad():\n    {calls.replace(chr(10), chr(10) + '    ')}")
    assert isinstance(reply, Workload), reply
    assert (reply.script.module, reply.script.calls) == ("Net", 3)
    assert {signature.tensors[0].shape for signature in reply.signatures} == {(3, 4), (5, 4)}
    reply = watch(outer + calls)
    assert isinstance(reply, Failure)
    assert "calls no module that has parameters and takes tensors" in reply.message


def test_what_is_evaluated_in_a_training_is_tuned_if_it_is_named(watch):
    reply = watch(
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(3):\n    net.train()\n"
        "    net(torch.ones(3, 4)).sum().backward()\n    optimizer.step()\n    net.eval()\n"
        "    with torch.no_grad():\n        net(torch.ones(9, 4))\nnet.train()",
        module="net",
    )
    assert isinstance(reply, Workload), reply
    assert [signature.tensors[0].shape for signature in reply.signatures] == [(9, 4)]
    assert reply.script.calls == 3
    assert not reply.in_training_mode
    assert not reply.script.with_gradients


def test_what_the_script_does_to_its_model_is_told(watch):
    reply = watch(
        "fast = torch.compile(net, backend='eager')\nfor _ in range(3):\n"
        "    with torch.autocast('cpu', dtype=torch.bfloat16):\n        fast(torch.ones(3, 4))"
    )
    assert isinstance(reply, Workload), reply
    assert (reply.script.autocast, reply.script.is_compiled, reply.script.with_gradients) == ("bfloat16", True, True)
    assert reply.script.module == "Net"
    assert len(reply.notes) == 5


COMPILED = "\nwith torch.no_grad():\n    for _ in range(3):\n        net(torch.ones(3, 4))"


@pytest.mark.parametrize("compiles", ["net.compile(backend='eager')", "net.into.compile(backend='eager')"])
def test_a_model_that_is_compiled_in_place_is_recognized(watch, compiles):
    reply = watch(compiles + COMPILED)
    assert isinstance(reply, Workload), reply
    assert reply.script.is_compiled
    assert any("the script compiles it itself" in note for note in reply.notes)
    model, samples = unspool(reply)
    assert model(*samples[0].args).shape == (3, 2)


def test_a_compiled_forward_is_refused_with_the_remedy(watch):
    reply = watch("net.forward = torch.compile(net.forward, backend='eager')" + COMPILED)
    assert isinstance(reply, Failure)
    assert "replaces the forward() of Net by a compiled one" in reply.message
    assert "`compile()` instead" in reply.message


def test_what_a_script_forks_ends_with_the_script(watch, tmp_path):
    reply = watch(
        "import os\nchild = os.fork()\nnet(torch.ones(3, 4))\n"
        f"open({str(tmp_path / 'said')!r}, 'a').write('twice ')\nif child:\n    os.waitpid(child, 0)"
    )
    assert isinstance(reply, Workload), reply
    assert reply.script.calls == 1


def test_nothing_of_the_users_is_overwritten(watch, tmp_path):
    (tmp_path / "scores.csv").write_text("precious")
    reply = watch(
        "import os, subprocess\nfrom pathlib import Path\nhere = Path(__file__).parent\nos.chdir(here)\n"
        "Path('scores.csv').write_text('new')\nassert Path('scores.csv').read_text() == 'new'\n"
        "torch.save(net.state_dict(), here / 'net.pt')\nnet.load_state_dict(torch.load(here / 'net.pt'))\n"
        "subprocess.run(['true'])\nnet(torch.ones(3, 4))"
    )
    assert isinstance(reply, Workload), reply
    assert (tmp_path / "scores.csv").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.csv", "script.py", "workload"]
    assert "whose files are not redirected: true" in reply.notes[-1]


def test_what_a_module_beside_it_does_at_its_import_is_not_done_again(watch, tmp_path):
    (tmp_path / "helping.py").write_text(
        "import torch\nfrom pathlib import Path\nPath(__file__).with_name('log.txt').write_text('new')\n"
        "class Own(torch.nn.Linear):\n    pass\n"
    )
    (tmp_path / "log.txt").write_text("precious")
    reply = watch("import helping\nhelping.Own(4, 2)(torch.ones(3, 4))")
    assert isinstance(reply, Workload), reply
    assert "helping" not in reply.modules
    assert type(unspool(reply)[0]).__name__ == "Own"
    assert (tmp_path / "log.txt").read_text() == "precious"


def test_a_thread_that_goes_on_writes_nothing_of_the_users(watch, tmp_path):
    (tmp_path / "beat.txt").write_text("precious")
    reply = watch(
        "import threading, time\nfrom pathlib import Path\ndef beat():\n    while True:\n"
        "        Path(__file__).with_name('beat.txt').write_text('new')\n        time.sleep(0.001)\n"
        "threading.Thread(target=beat, daemon=True).start()\nwhile True:\n    net(torch.ones(3, 4))",
        calls=20,
    )
    assert isinstance(reply, Workload), reply
    assert (tmp_path / "beat.txt").read_text() == "precious"


def test_a_script_that_waits_or_holds_on_is_ended(watch):
    waits = watch("net(torch.ones(3, 4))\nimport time\ntime.sleep(1000)", seconds=0.5)
    assert isinstance(waits, Workload), waits
    assert not waits.script.whole
    holds_on = watch("for _ in range(50):\n    try:\n        net(torch.ones(3, 4))\n    except:\n        pass", calls=5)
    assert isinstance(holds_on, Workload), holds_on
    assert (holds_on.script.calls, holds_on.script.whole) == (5, False)


def test_samples_are_as_they_were_given_and_hold_no_more_than_themselves(watch):
    reply = watch(
        "big = torch.arange(4_000_000.0).reshape(-1, 4)\nclass Spoils(Net):\n    def forward(self, x, seen):\n"
        "        out = super().forward(x)\n        seen.append(1)\n        x.zero_()\n        return out\n"
        "net = Spoils().eval()\nfor n in range(3):\n    net(big[2 * n + 1 : 2 * n + 3], [])"
    )
    assert isinstance(reply, Workload), reply
    _model, samples = unspool(reply)
    assert [sample.args[0][0, 0].item() for sample in samples] == [4.0, 12.0, 20.0]
    assert all(sample.args[0].untyped_storage().nbytes() == 32 for sample in samples)
    assert [sample.args[1] for sample in samples] == [[], [], []]


def test_what_is_scripted_is_left_alone(watch):
    reply = watch("torch.jit.trace(net, torch.ones(3, 4))(torch.ones(3, 4))\nnet(torch.ones(3, 4))")
    assert isinstance(reply, Workload), reply
    assert reply.script.calls == 1


def test_a_script_that_defines_its_workload_is_not_watched(watch):
    reply = watch("model, inputs = net, torch.ones(3, 4)\nassert __name__ != '__main__'")
    assert isinstance(reply, Workload), reply
    assert reply.script is None
    assert torch.equal(unspool(reply)[1][0].args[0], torch.ones(3, 4))


def test_the_same_calls_are_the_same_workload_however_long_it_was_watched(watch):
    loop = "with torch.no_grad():\n    for n in range(100):\n        net(torch.ones(1 + n % 2, 4))"
    assert watch(loop, calls=11).fingerprint == watch(loop, calls=60).fingerprint


def test_of_what_it_prints_the_beginning_and_the_end_are_kept(watch, tmp_path):
    text = """
import os, subprocess
print("first line")
os.write(2, b"of its own\\n")
for _ in range(60):
    os.write(1, b"x" * 999_999 + b"\\n")
with torch.no_grad(): net(torch.ones(3, 4))
subprocess.run(["echo", "of another program"])
print("last line")
"""
    reply = watch(text)
    assert isinstance(reply, Workload), reply
    log = (tmp_path / "workload" / "script.log").read_text()
    assert len(log) < 2_000_000
    assert log.startswith(("first line\n", "of its own\nfirst line\n")), log[:100]
    assert "bytes are left out here]" in log
    assert log.endswith("of another program\nlast line\n"), log[-100:]


def test_what_it_prints_is_shown_while_it_runs(watch, tmp_path):
    said = tmp_path / "said"
    text = "print('early', flush=True)\nimport os, time\nuntil = time.time() + 60\n"
    text += f"while not os.path.exists({str(said)!r}) and time.time() < until:\n    time.sleep(0.02)\n"
    text += f"assert os.path.exists({str(said)!r})\nprint('late')\nnet(torch.ones(3, 4))\nsys.exit(3)"

    def answer(text):
        if "early" in text:
            said.touch()

    with shown_live(answer) as pipe:
        reply = watch(text, shows=pipe)
    assert isinstance(reply, Workload), reply
    assert "by sys.exit(3), after its calls were recorded" in " ".join(reply.notes)
    assert "tuning gains little for so few calls" in " ".join(reply.notes)


def test_a_module_is_run_within_its_package(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "config.py").write_text("WIDTH = 6\n")
    end = "print(__name__, __package__, __spec__.name, sys.argv[1:], Net(WIDTH)(torch.ones(1, 4)).shape)\n"
    (package / "train.py").write_text("from .config import WIDTH\n" + HEAD + end)
    run = "import pathlib; from autocompile.workload.watching.main import run_as_main; "
    run += "run_as_main(pathlib.Path('pkg/train.py'), ['a'], name='pkg.train')"
    said = [
        subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for command in (["-m", "pkg.train", "a"], ["-c", run])
    ]
    assert said[0] == said[1]
    assert "pkg.train" in said[1]
