"""`autocompile run` on the command line: an unmodified script with a recommendation applied."""

import json
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from places import REPOSITORY
from torch import nn

from autocompile.artifact.scripted import ServedScript

AUTOCOMPILE = [sys.executable, "-m", "autocompile"]
# This search ends after one or two trials, long before its budget.
QUICK = """
[search]
max_trials = {trials}
[dimensions]
runtime = ['{runtime}']
amp = []
threads = []
freezing = []
[screening]
precision = 0.2
limit_s = 0.5
[finals]
candidates = 1
processes = 1
limit_s = 0.5
"""
SCRIPT = """\
import atexit, collections, os, signal, sys, time
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(x).relu()

class Outer(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.last = net, nn.Linear(2, 2)

    def forward(self, features):
        features["out"] = self.last(self.net(features["x"]))
        return features

def main(what):
    torch.manual_seed(0)
    net, other = Net().eval(), nn.Linear(4, 3)
    x = torch.linspace(0, 1, 8).reshape(2, 4)
    if what == "other":
        return print(other(x).shape)
    if what == "learn":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(x).sum().backward()
        optimizer.step()
    with torch.no_grad():
        for _ in range(5):
            total = net(x).sum()
    print(f"{total:.4f}", isinstance(net, Net), list(net.state_dict()), vars(net).keys() == vars(Net()).keys())
    if what == "autocast":
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            print(net(x).dtype)
    if what == "inside":
        outer = Outer(net)
        with torch.no_grad():
            print([outer(collections.UserDict(x=x))["out"].sum() for _ in range(2)])
    if what == "hook":
        sys.excepthook = lambda kind, fault, trace: print("crashed:", fault)
        raise OSError("no disk")
    if what == "closed":
        sys.stdout.close()
    if what == "raise":
        raise OSError("no disk")
    if what == "exit":
        sys.exit(7)
    if what == "wait":
        atexit.register(print, "at the end")
        print("waiting", flush=True)
        time.sleep(100)

if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "serve")
"""


def command(*arguments, cwd):
    return subprocess.run(
        [*AUTOCOMPILE, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=500, check=False
    )


class Batch:
    def __init__(self, x):
        self.x = x


class OfBatches(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, batch):
        return self.out(batch.x)


def test_a_call_with_an_object_is_served_if_it_calls_the_tuned_model():
    served, model = ServedScript.__new__(ServedScript), OfBatches()
    vars(served).update(
        _fitting=lambda module: (lambda *_call: "served") if module is model else None,
        _manifest=SimpleNamespace(device_type="cpu"),
    )
    with served.applied(), torch.no_grad():
        assert model(Batch(torch.ones(3, 4))) == "served"
        assert nn.Sequential(model)(Batch(torch.ones(3, 4))) == "served"


def test_within_what_the_script_compiles_nothing_is_served():
    seen = []
    served, model = ServedScript.__new__(ServedScript), nn.Sequential(OfBatches())
    vars(served).update(_fitting=lambda module: seen.append(type(module)))
    with served.applied(), torch.no_grad():
        model.compile(backend="eager", fullgraph=True)
        assert model(Batch(torch.ones(3, 4))).shape == (3, 2)
    assert seen == [nn.Sequential]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A directory with a script, and what tuning it left."""
    directory = tmp_path_factory.mktemp("scripts")
    (directory / "script.py").write_text(SCRIPT)
    (directory / "quick.toml").write_text(QUICK.format(trials=2, runtime="eager"))
    ran = command("tune", "script.py", "--budget", "300s", "--strategy", "quick.toml", "--json", cwd=directory)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["workload"]["script"]["calls"] == document["calls"] == 5
    return directory


@pytest.mark.parametrize("what", ["serve", "learn", "other", "inside", "autocast", "raise", "hook", "exit", "closed"])
def test_what_a_script_prints_and_how_it_ends_is_its_own(tuned, what):
    plain = subprocess.run(
        [sys.executable, "script.py", what], capture_output=True, text=True, cwd=tuned, timeout=300, check=False
    )
    ran = command("run", "rec", "script.py", what, cwd=tuned)
    assert ran.stdout == plain.stdout
    assert ran.returncode == plain.returncode == {"raise": 1, "hook": 1, "exit": 7}.get(what, 0)
    told = [line for line in ran.stderr.splitlines() if line.startswith("autocompile: ")]
    assert [line for line in ran.stderr.splitlines() if line not in told] == plain.stderr.splitlines()
    said = "\n".join(told)
    if what == "other":
        assert "did not call the model that was tuned, so nothing was changed" in said
        assert "Linear: the model is not the one that was tuned" in said
    else:
        assert "autocompile: Net as " in said
        assert f"calls {7 if what == 'inside' else 5} by eager" in said
        assert "ms a call after the first" in said
        assert ("1 call not as recommended: autocast was enabled" in said) == (what == "autocast")
        assert ("1 call not as recommended: gradients were enabled" in said) == (what == "learn")


def test_signals_are_the_scripts(tuned):
    with subprocess.Popen(
        [*AUTOCOMPILE, "run", "rec", "script.py", "wait"],
        cwd=tuned, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while "waiting" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert "at the end" in out
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert "running.py" not in err
    assert "calls 5 by eager" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "script.py"), "nothing: contains no recommendation"),
        (("rec", "absent.py"), "absent.py: no such script"),
    ],
)
def test_what_cannot_be_run_is_told(tuned, arguments, said):
    ran = command("run", *arguments, cwd=tuned)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_an_inference_loop_is_tuned_and_run_as_it_is(tmp_path):
    script = REPOSITORY / "examples" / "scripts" / "classify.py"
    arguments = ("--samples", "256", "--output")
    (tmp_path / "quick.toml").write_text(QUICK.format(trials=3, runtime="inductor"))
    plain = subprocess.run(
        [sys.executable, script, *arguments, "plain.csv"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    tune = ("tune", script, "--budget", "400s", "--strategy", "quick.toml", "--calls", "1000000")
    ran = command(*tune, "--", *arguments, "watched.csv", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert f"autocompile run rec {script} {shlex.join(arguments)} watched.csv" in ran.stdout
    assert not (tmp_path / "watched.csv").exists()
    ran = command("run", "rec", script, *arguments, "served.csv", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, plain.stdout)
    assert (tmp_path / "served.csv").read_text() == (tmp_path / "plain.csv").read_text()
    assert "autocompile: Net as " in ran.stderr
    assert "calls not as recommended" not in ran.stderr
