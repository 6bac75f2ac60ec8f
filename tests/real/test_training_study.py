"""The training study: its workloads learn, its ways by hand learn the same, and its table shows the results."""

import importlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from places import REPOSITORY
from torch.utils import _pytree as pytree

STUDY = REPOSITORY / "studies" / "training"
PARTS = ("networks", "workloads", "by_hand", "one", "gradients", "record", "table")
NAMES = ("vit", "gpt", "resnet", "lstm", "unet", "mlp", "resnet50", "resnet18_small", "transformer")
SAMPLES = 2


@pytest.fixture(scope="module")
def study():
    """Its scripts, which find each other by their names alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDY))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in PARTS})
    for name in PARTS:
        del sys.modules[name]


def leaves(batches):
    return [leaf for leaf in pytree.tree_leaves(batches) if isinstance(leaf, torch.Tensor)]


def test_all_workloads_are_tested_and_a_gpu_has_three_more(study):
    assert tuple(study.workloads.KINDS) == NAMES
    assert tuple(study.workloads.chosen("cpu")) == NAMES[:6]
    assert tuple(study.workloads.chosen("cuda")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_step_has_a_loss_and_gradients_for_all_parameters(study, name):
    work = study.workloads.workload(name, samples=SAMPLES)
    before = [parameter.detach().clone() for parameter in work.model.parameters()]
    loss = study.by_hand.WAYS["eager"](work).step(work.batches[0])
    assert loss.dim() == 0
    assert math.isfinite(loss)
    for (own, parameter), was in zip(work.model.named_parameters(), before, strict=True):
        assert parameter.grad is not None, own
        assert bool(parameter.grad.isfinite().all()), own
        assert bool(parameter.grad.any()), own
        assert not torch.equal(parameter, was), own


@pytest.mark.parametrize("name", ["vit", "gpt", "lstm", "unet"])
def test_a_workload_is_the_same_each_time(study, name):
    one, other = (study.workloads.workload(name, samples=SAMPLES) for _ in range(2))
    assert all(map(torch.equal, one.model.parameters(), other.model.parameters()))
    assert all(map(torch.equal, leaves(one.batches), leaves(other.batches)))
    assert not all(map(torch.equal, leaves(one.batches[0]), leaves(one.batches[1])))


def test_ways_in_bfloat16_are_taken_where_there_are_instructions(study, monkeypatch):
    monkeypatch.setattr(study.by_hand, "computes_in", lambda dtype: False)
    assert study.by_hand.ways("cpu") == ["eager", "fused", "compiled_fused"]
    monkeypatch.setattr(study.by_hand, "computes_in", lambda dtype: dtype == "bfloat16")
    assert study.by_hand.ways("cpu") == list(study.by_hand.WAYS)


@pytest.mark.parametrize("way", ["fused", "bf16_fused", "compiled_fused", "compiled_bf16_fused"])
def test_every_way_learns_what_eager_learns(study, monkeypatch, way):
    compiled = []

    def traced(model):
        compiled.append(model)
        return torch_compile(model)

    torch_compile = partial(torch.compile, backend="eager")  # no C++ is compiled
    monkeypatch.setattr(torch, "compile", traced)
    eager, other = (
        study.one.started(study.by_hand.WAYS[name], study.workloads.workload("mlp", samples=16))
        for name in ("eager", way)
    )
    assert eager.losses[-1] < eager.losses[0]
    torch.testing.assert_close(other.losses, eager.losses, rtol=3e-2 if "bf16" in way else 1e-5, atol=0)
    assert "bf16" not in way or other.losses != eager.losses
    assert bool(compiled) == ("compiled" in way)


@pytest.mark.parametrize(("way", "settings"), [("eager", {}), ("fused", {"fused": True})])
def test_the_optimizer_is_fused_where_the_way_says_so(study, way, settings):
    asked = []

    def optimizer(parameters, **given):
        asked.append(given)
        return torch.optim.SGD(parameters, lr=0.1, **given)

    study.by_hand.WAYS[way](replace(study.workloads.workload("mlp", samples=SAMPLES), optimizer=optimizer))
    assert asked == [settings]


def test_gradients_are_clipped_as_the_workload_has_it(study):
    work = study.workloads.workload("lstm", samples=SAMPLES)
    study.by_hand.WAYS["fused"](replace(work, clip_norm=1e-3)).step(work.batches[0])
    norms = [parameter.grad.norm() for parameter in work.model.parameters()]
    torch.testing.assert_close(torch.stack(norms).norm(), torch.tensor(1e-3), rtol=1e-3, atol=0)


def test_what_is_measured_of_a_way_is_what_the_table_reads(study):
    found = study.one.measured("mlp", study.by_hand.WAYS["fused"], "cpu", seconds=0.05)
    assert found == json.loads(json.dumps(found))
    assert found["low"] <= found["speedup"] <= found["high"]
    assert found["eager_loss"] < found["eager_first_loss"]
    assert found["steps"] >= 3
    assert study.table.is_plausible(found)
    assert study.table.cell(found).startswith(f"{found['ms']:.3g} ms, {found['speedup']:.2f}x (")


@pytest.mark.parametrize("name", ["gpt", "lstm", "unet"])
def test_gradients_by_hand_are_compared_with_float64_without_dropout(study, name):
    work = study.gradients.undropped(study.workloads.workload(name, samples=SAMPLES))
    found = study.gradients.compared(work, "bf16_fused")
    assert found == json.loads(json.dumps(found))
    assert found["compared"] > found["parameters"] / 2
    assert 1e-4 < found["error"] < found["worst_error"] < 0.3
    assert found["lost"] == 0


@pytest.mark.parametrize(("value", "error"), [(0.0, 1.0), (math.nan, math.inf)])
def test_a_lost_gradient_is_found(study, monkeypatch, value, error):
    def without_the_last(work):
        loop = study.by_hand.by_hand(work)

        def step(batch):
            loss = loop.step(batch)
            list(work.model.parameters())[-1].grad.fill_(value)
            return loss

        return replace(loop, step=step)

    monkeypatch.setitem(study.by_hand.WAYS, "fused", without_the_last)
    found = study.gradients.compared(study.workloads.workload("mlp", samples=SAMPLES), "fused")
    assert (found["worst"], found["worst_error"], found["lost"]) == ("6.bias", error, 1)


def test_a_way_that_loses_a_gradient_is_not_timed_again(study):
    found = {"eager": way(1.0), "fused": way(1.3), "compiled_fused": way(1.5)}
    assert study.record.fastest(found, {}) == ["compiled_fused"]
    assert study.record.fastest(found, {"fused": {"lost": 0}, "compiled_fused": {"lost": 2}}) == ["fused"]
    assert study.record.fastest(found, {"compiled_fused": {"failed": "it"}}) == ["compiled_fused"]


def test_rows_without_a_comparison_of_gradients_get_one(study, tmp_path, monkeypatch):
    path = tmp_path / "one.jsonl"
    machine, vit, mlp = made_up()
    rows = [vit, {**mlp, "gradients": {}}, {**vit, "workload": "gpt"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in (machine, *rows)))
    monkeypatch.setattr(study.record, "process", lambda *arguments: {"asked": list(arguments)})
    study.record.complete(path, "cpu", ["vit", "mlp"])
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found[1].pop("gradients")["fused"] == {"asked": ["gradients.py", "vit", "fused"]}
    assert found == [machine, *rows]


def test_a_process_that_fails_is_recorded_with_its_error(study):
    assert "invalid choice: 'slow'" in study.record.process("one.py", "mlp", "slow")["failed"]


def table_of(directory):
    done = subprocess.run(
        [sys.executable, str(STUDY / "table.py"), str(directory)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_recording_begins_with_the_machine(study, tmp_path):
    path = study.record.results_of(tmp_path / "results", "cpu")
    assert path.name.endswith(f"torch{torch.__version__.split('+')[0]}.jsonl")
    machine = json.loads(path.read_text())
    assert path == study.record.results_of(tmp_path / "results", "cpu")
    said = table_of(path.parent)
    assert f"## {machine['kind']}, torch {machine['torch']}" in said
    assert "Recorded so far: 0 of 6 workloads." in said


def way(speedup, **other):
    """As `one.py` prints it; eager's loss falls from 5 to 1."""
    return {
        "ms": 100 / speedup, "eager_ms": 100.0, "speedup": speedup, "low": speedup - 0.1, "high": speedup + 0.1,
        "steps": 30, "cold_start_s": 2.5, "loss": 1.0, "eager_first_loss": 5.0, "eager_loss": 1.0, "noisy": False,
        **other,
    }  # fmt: skip


def made_up(bf16=False):
    machine = {"device": "cpu", "kind": "A Processor 2 cores", "torch": "2.13.0", "bf16": bf16, "workloads": 6}
    verdict = {"winner": "fused inductor", "said": {"speedup": 1.9, "low": 1.8, "high": 2.0}, "took_s": 100.0}
    ways = {"eager": way(1.01), "fused": way(1.25), "compiled_fused": way(3.0, loss=1.9, cold_start_s=21.0)}
    vit = {"ways": ways, "verdict": verdict, "ours": [way(2.0), way(1.5), way(2.5)]}
    broken = {"failed": "RuntimeError: no compiler"}
    ways = {"eager": way(0.99), "fused": way(0.8), "compiled_fused": broken}
    mlp = {"ways": ways, "verdict": {"failed": "no budget"}, "ours": [{"failed": "no budget"}]}
    rows = [{"workload": "vit", **vit}, {"workload": "mlp", **mlp}]
    return [machine, *({"budget": "5m", "seconds": 20.0, **row} for row in rows)]


def rows_of(said):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in said.splitlines() if line[:2] == "| "]


def test_the_table_says_what_was_recorded(tmp_path):
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made_up()))
    said = table_of(tmp_path)
    assert "## A Processor 2 cores, torch 2.13.0" in said
    assert "Recorded so far: 2 of 6 workloads. No ways by hand in bfloat16" in said
    assert "This study has not been recorded on a GPU" in said
    assert "The gradients have not been compared on this machine." in said
    assert [line for line in said.splitlines() if line.startswith("- ")] == [
        "- mlp, compiled_fused: RuntimeError: no compiler",
        "- mlp, ours: no budget",
    ]
    rows = rows_of(said)
    assert ["workload", "eager", "fused", "compiled_fused", "**ours**"] in rows
    assert [
        "vit", "99 ms, 1.01x (0.91 to 1.11)", "80 ms, 1.25x (1.15 to 1.35)", "(33.3 ms, 3.00x (2.90 to 3.10))",
        "50 ms, 2.00x (1.90 to 2.10)",
    ] in rows  # fmt: skip
    assert ["mlp", "101 ms, 0.99x (0.89 to 1.09)", "125 ms, 0.80x (0.70 to 0.90)", "fails", "fails"] in rows
    assert ["geometric mean", "1.00x", "1.00x", "1.00x", "1.41x"] in rows
    assert [
        "vit", "fused 1.25x", "160%", "fused inductor", "1.90x (1.80 to 2.00)", "2.00x, 1.50x, 2.50x", "5m",
    ] in rows  # fmt: skip
    assert ["mlp", "eager 1.00x", "fails", "none", "nothing", "none", "5m"] in rows
    assert ["vit", "5", "2.5 s, 1", "2.5 s, 1", "21.0 s, 1.9", "2.5 s, 1"] in rows


def test_a_way_that_loses_a_gradient_is_not_the_best(tmp_path):
    machine, vit, _mlp = made_up()
    right = {"error": 1e-6, "worst": "up.weight", "worst_error": 1e-6, "lost": 0, "compared": 4, "parameters": 4}
    lost = {"error": 0.5, "worst": "down.weight", "worst_error": 1.0, "lost": 2, "compared": 4, "parameters": 4}
    vit = {**vit, "gradients": {"eager": right, "fused": lost, "compiled_fused": {"failed": "no compiler"}}}
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (machine, vit)))
    said = table_of(tmp_path)
    lost, failed = (line for line in said.splitlines() if line.startswith("- "))
    assert lost.startswith("- vit, fused: 2 of 4 gradients are lost, such as that of `down.weight` (off by 100% of its")
    assert failed == "- vit, compiled_fused: not compared: no compiler"
    rows = rows_of(said)
    assert ["vit", "eager 1.00x", "200%"] in [row[:3] for row in rows]
    assert "(80 ms, 1.25x (1.15 to 1.35))" in next(row for row in rows if row[:1] == ["vit"])
    assert "have not been compared" not in said


def test_the_table_of_nothing(tmp_path):
    said = table_of(tmp_path)
    assert "Nothing is recorded yet." in said
    assert rows_of(said) == []


def test_a_recording_on_a_gpu_is_not_denied(tmp_path):
    machine, *rows = made_up(bf16=True)
    text = "".join(json.dumps(row) + "\n" for row in [{**machine, "device": "cuda"}, *rows])
    (tmp_path / "gpu.jsonl").write_text(text)
    said = table_of(tmp_path)
    assert "No GPU" not in said
    assert "No ways by hand" not in said
