"""A training tuned from end to end: in memory and from the command line."""

import hashlib
import json
import pickle
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import torch
from laboratory import EAGER
from learners import LEARNERS, adamw, fitted
from places import REPOSITORY

import autocompile
from autocompile.core.errors import InvalidRecommendation, InvalidValue, NotExportable

pytestmark = pytest.mark.usefixtures("one_thread")

# More than these runs need even on a busy machine: they end when their strategy ends.
AMPLE = "400s"
COMPILED = EAGER.replace("max_trials = 3", "max_trials = 2").replace("'eager'", "'inductor'")

SCRIPT = """
import torch
from torch.nn import functional

torch.set_num_threads(1)
torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 32)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x)))

def loss(model, batch):
    return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs = [(torch.randint(32, (4, 8)), torch.randint(32, (4, 8))) for _ in range(2)]
accumulate, clip_norm = 2, 1.0
"""


def kept(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "autocompile", *arguments],
        capture_output=True, text=True, cwd=cwd, timeout=600, check=False,
    )  # fmt: skip


def digest_of(model, optimizer):
    """Of all that belongs to the user: weights, gradients, the optimizer with its state, the random state."""
    parts = [*model.state_dict().values(), *(p.grad for p in model.parameters()), torch.get_rng_state()]
    whole = [part.numpy().tobytes() for part in parts]
    return hashlib.sha256(pickle.dumps((whole, optimizer.state_dict(), model.training))).hexdigest()


def test_a_perceptron_is_tuned_and_the_user_keeps_everything_as_it_was(tmp_path):
    torch.manual_seed(0)
    model, batch = LEARNERS["mlp"].model().train(), LEARNERS["mlp"].batch()
    optimizer = adamw(model.parameters())
    fitted(model, batch).backward()
    optimizer.step()
    before = digest_of(model, optimizer)
    training = autocompile.Training(loss=fitted, optimizer=optimizer)
    strategy = kept(tmp_path, "eager.toml", EAGER.replace("[dimensions]", "[dimensions]\nmicro_batches = [1]"))
    rec = autocompile.optimize(
        model, [batch], AMPLE, strategy=str(strategy), output=tmp_path / "rec", training=training, progress=False
    )
    assert digest_of(model, optimizer) == before
    document = rec.document
    assert (document.workload.kind, document.goal.deploy) == ("training", "jit")
    assert {"eager", "eager optimizer=fused", "eager optimizer=foreach"} == {entry.label for entry in rec.trials}
    assert all(entry.failure is None for entry in rec.trials)
    left_out = {decision.subject: decision.reason for decision in rec.decisions if decision.action == "narrowed"}
    assert "does not train" in left_out["runtime=aot"]
    assert re.search(r"\bcalls?\b", str(rec)) is None
    assert "per step" in str(rec)
    assert "s a step in eager" in rec.explain()
    for served in (lambda: rec.module, lambda: autocompile.load(tmp_path / "rec", model)):
        with pytest.raises(InvalidRecommendation, match="the recommendation is for training"):
            served()
    with pytest.raises(NotExportable, match="only a model can be exported"):
        rec.export("onnx", tmp_path / "exported")
    scope = {"model": model, "optimizer": optimizer, "loss": fitted}
    exec(rec.snippet(), scope)
    losses = [float(scope["step"](batch)) for _ in range(30)]
    assert losses[-1] < losses[0]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A directory with a script, and in `rec` what it was tuned to."""
    directory = tmp_path_factory.mktemp("tuned")
    kept(directory, "compiled.toml", COMPILED)
    kept(directory, "net.py", SCRIPT)
    ran = command(
        "tune", "net.py", "--budget", AMPLE, "--strategy", "compiled.toml", "--quiet", "--output", "rec", cwd=directory
    )
    assert ran.returncode == 0, ran.stderr
    return directory


def test_a_script_with_a_loss_and_an_optimizer_is_tuned_for_training(tuned):
    document = json.loads((tuned / "rec" / "recommendation.json").read_text())
    jsonschema.validate(document, json.loads((REPOSITORY / "autocompile" / "document.schema.json").read_text()))
    told = document["workload"]["training"]
    assert (told["optimizer"], told["accumulate"], told["clip_norm"]) == ("SGD", 2, 1.0)
    plain = next(entry for entry in document["trials"] if entry["label"] == "inductor")
    assert plain["status"] == "measured", plain
    assert plain["counters"]["graphs"] >= 1
    assert plain["learned"]["steps"] == 32
    assert plain["learned"]["off"] <= plain["learned"]["limit"]


def test_a_kept_training_is_verified_on_another_machine_and_for_the_same_training_alone(tuned, tmp_path):
    document = json.loads((tuned / "rec" / "recommendation.json").read_text())
    fused = document["baseline"] | {"label": "fused", "plan": document["baseline"]["plan"] | {"optimizer": "fused"}}
    environment = document["environment"] | {"torch": "2.0.0"}
    shutil.copytree(tuned / "rec", tmp_path / "rec")
    changed = json.dumps(document | {"winner": fused, "environment": environment})
    (tmp_path / "rec" / "recommendation.json").write_text(changed)
    kept(tmp_path, "net.py", SCRIPT)
    again = command("verify", "rec", "net.py", "--budget", AMPLE, "--json", "--quiet", cwd=tmp_path)
    found = json.loads(again.stdout)
    assert found["verdict"] in ("good", "regression"), found  # which of them is the clock's word
    assert again.returncode == (found["verdict"] != "good")
    assert any(line.startswith("torch: 2.0.0 then") for line in found["changes"])
    assert found["learned"]["steps"] == 32
    assert found["learned"]["last"] < found["learned"]["first"]
    kept(tmp_path, "net.py", SCRIPT.replace("momentum=0.9", "momentum=0.5"))
    refused = command("verify", "rec", "net.py", "--quiet", cwd=tmp_path)
    assert refused.returncode == 2
    assert "its loss or the settings of its optimizer differ" in refused.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"training": "adam"}, "training: is a str"),
        ({"goal": autocompile.Goal(metric=len)}, "metric: needs a model's outputs"),
        ({"goal": autocompile.Goal(batch="tune", objective="throughput")}, "batch: changes what the model learns"),
        ({"goal": autocompile.Goal(processes=4)}, "processes: in training, every process compiles for itself"),
    ],
)
def test_what_has_no_meaning_for_a_step_is_told_in_one_line(options, words):
    model = LEARNERS["mlp"].model()
    given = {"training": autocompile.Training(loss=fitted, optimizer=adamw)} | options
    with pytest.raises(InvalidValue, match=words) as caught:
        autocompile.optimize(model, LEARNERS["mlp"].batch(), progress=False, **given)
    assert "\n" not in str(caught.value)
