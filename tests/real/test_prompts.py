"""Prompts of a model that generates: they are tuned after the decode steps, and both are served together."""

import re

import pytest
import torch
from laboratory import Laboratory
from msgspec.structs import replace
from test_generate import CACHE, OPENVINO, QUICK, by, gpt2, llama, made, opt, plainly, prompts, ran, seen
from transformers import DynamicCache

import autocompile
from autocompile.artifact.directory import read_document
from autocompile.artifact.integrity import manifest_digest, open_manifest, prompts_directory, write_manifest
from autocompile.artifact.texts import Part, Texts
from autocompile.core.errors import InvalidArtifact
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime.snippet import snippet
from autocompile.workload.generating import seen as recording

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def always(monkeypatch):
    """Prompts are tuned, however little time they take."""
    monkeypatch.setattr(recording, "_LEAST_SHARE", 0.0)


def unpadded():
    return {"inputs": torch.arange(3, 23).reshape(2, 10), "attention_mask": None}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", [llama, gpt2, opt])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "plain"])
def test_the_call_for_a_prompt_computes_what_the_model_does_and_can_be_exported(kind, padded):
    model = made(kind)
    found = seen(model, **({} if padded else unpadded())).prompts
    assert found.entry.part == "prompt"
    assert found.entry.padded == padded
    (sample,) = found.samples
    ids, kept = sample.args[0], (prompts()["attention_mask"] if padded else torch.ones(2, 10)).bool()
    with torch.no_grad():
        logits, held = found.prompting(*sample.args)
        cache = DynamicCache()
        positions = {"position_ids": sample.args[1]} if found.prompting._has_positions else {}
        plain = model(input_ids=ids, attention_mask=kept.long(), use_cache=True, **{CACHE: cache}, **positions)
        torch.testing.assert_close(logits[:, -1], plain.logits[:, -1])
        for (keys, values), layer in zip(held, cache.layers, strict=True):
            torch.testing.assert_close(
                keys[kept[:, None].expand(keys.shape[:3])], layer.keys[kept[:, None].expand(keys.shape[:3])]
            )
            torch.testing.assert_close(values[0], layer.values[0])
        length = torch.export.Dim("length", min=2, max=64)
        shapes = tuple({1: length} for _ in sample.args)
        traced = torch.export.export(found.prompting, sample.args, dynamic_shapes=shapes, strict=False).module()
        longer = tuple(torch.cat([one, one[:, -3:]], dim=1) for one in sample.args)
        for call in (sample.args, longer):
            again, also_held = traced(*call)
            expected, expected_held = found.prompting(*call)
            torch.testing.assert_close(again, expected)
            torch.testing.assert_close(also_held[0][0][0], expected_held[0][0][0])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", [llama, gpt2, opt])
@pytest.mark.parametrize("settings", [{}, {"do_sample": True, "top_k": 20}], ids=str)
@pytest.mark.parametrize("with_steps", [True, False], ids=["both parts", "prompts alone"])
def test_generate_gives_the_same_tokens(kind, settings, with_steps):
    model = made(kind)
    generation, calls = seen(model), []

    def prompting(*inputs):
        calls.append(inputs)
        return generation.prompts.prompting(*inputs)

    decode = [Part(generation.decoding, generation.entry)] if with_steps else []
    texts = Texts(model, *decode, Part(prompting, generation.prompts.entry))
    asked = {"max_new_tokens": 80, **settings}
    assert torch.equal(by(texts, model, **asked), plainly(model, **asked))
    assert len(calls) == 1
    assert not texts.left


@pytest.mark.usefixtures("always")
def test_prompts_of_another_kind_are_left_to_the_model():
    model = made(llama)
    found = seen(model, **unpadded()).prompts
    texts = Texts(model, Part(found.prompting, found.entry))
    assert torch.equal(by(texts, model, max_new_tokens=6), plainly(model, max_new_tokens=6))
    assert texts.left == {"prompts of another kind than those that were tuned": 1}


def test_prompts_that_take_little_time_are_not_tuned(monkeypatch):
    monkeypatch.setattr(recording, "_LEAST_SHARE", 1.0)
    assert seen(made(llama)).prompts is None


@pytest.fixture
def packed(laboratory, always):
    """The decode step of a model and its prompts, both compiled ahead, in one directory."""
    model = made(llama)
    generation = seen(model, **unpadded())
    laboratory.prepare(generation.decoding, list(generation.samples), generation=generation)
    directory = laboratory.pack(OPENVINO, Serving("openvino", "load"))
    assert not isinstance(directory, Failure), directory
    own = Laboratory(laboratory.runner, directory)
    own.workload, own.reference = laboratory.workload.prompts, str(directory / "reference.pt")
    own.profile()
    made_by = own.pack(OPENVINO, Serving("openvino", "load"), cache="prompts")
    assert not isinstance(made_by, Failure), made_by
    digest = manifest_digest(made_by)
    made_by.rename(directory / prompts_directory(digest))
    write_manifest(directory, replace(open_manifest(directory), prompts=digest))
    return model, directory, directory / prompts_directory(digest)


def test_what_is_loaded_serves_prompts_and_decode_steps(packed):
    model, directory, of_prompts = packed
    loaded = autocompile.load(directory, model)
    ids = unpadded()["inputs"]
    assert torch.equal(loaded.generate(ids, max_new_tokens=20), model.generate(ids, max_new_tokens=20))
    assert loaded.prompts.status.calls == {"openvino": 1}
    assert loaded.status.calls == {"openvino": 19}
    # Of another length: the program is for the one that was seen, and the model itself computes the prompt.
    longer = torch.arange(3, 27).reshape(2, 12)
    assert torch.equal(loaded.generate(longer, max_new_tokens=5), model.generate(longer, max_new_tokens=5))
    (fallback,) = loaded.prompts.status.fallbacks
    assert "has shape" in fallback.reason
    alone = autocompile.load(of_prompts, model)
    positions = torch.arange(10).expand(2, 10).contiguous()
    torch.testing.assert_close(alone(ids, positions)[0], model(ids).logits[:, -1:], rtol=1e-4, atol=1e-5)
    # The digest of the whole artifact includes the part for prompts.
    write_manifest(of_prompts, replace(open_manifest(of_prompts), label="another"))
    with pytest.raises(InvalidArtifact, match=r"prompts"):
        autocompile.load(directory, model)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch's own exporter of itself
@pytest.mark.usefixtures("always")
def test_the_snippet_generates_the_same_tokens_without_this_library():
    model, ids = made(llama), unpadded()["inputs"]
    plan = Plan(runtime="inductor", settings={"backend": "eager"})
    code = snippet(plan, device_type="cpu", is_module=True, generation=seen(model, **unpadded()).prompts.entry)
    assert "autocompile" not in code
    names = {"model": model}
    exec(code, names)
    asked = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    assert torch.equal(names["generate"](ids, 12), model.generate(ids, **asked))


SCRIPT = """\
import torch
torch.set_num_threads(1)
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=120, hidden_size=64, intermediate_size=256, num_hidden_layers=2,
                     num_attention_heads=4, bos_token_id=1, eos_token_id=2, pad_token_id=0)
model = LlamaForCausalLM(config).eval()
for length in (200, 240, 220):
    text = model.generate((torch.arange(length) % 110 + 3)[None], max_new_tokens=3, do_sample=False)
    print(text[0, -3:].tolist())
"""


def test_a_script_is_tuned_and_run_with_both(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "quick.toml").write_text(QUICK)
    tune = ("-m", "autocompile", "tune", "script.py", "--budget", "600s", "--calls", "1000000")
    tuned = ran(tmp_path, *tune, "--strategy", "quick.toml", "--output", "rec")
    assert tuned.returncode == 0, tuned.stderr
    assert re.search(r"Prompts( are left to the model itself)?: ", " ".join(tuned.stdout.split())), tuned.stdout
    document = read_document(tmp_path / "rec")
    assert document.prompts is not None
    own = tmp_path / "rec" / document.prompts.directory
    assert read_document(own).workload.kind == "prompt"
    plain = ran(tmp_path, "script.py")
    run = ran(tmp_path, "-m", "autocompile", "run", "rec", "script.py")
    assert run.returncode == 0, run.stderr
    assert run.stdout == plain.stdout
    if not document.prompts.left:
        assert re.search(r"prompts as openvino\S*.*: 3 by openvino", run.stderr), run.stderr
        assert document.prompts.generated.tokens > 0
    shown = ran(tmp_path, "-m", "autocompile", "show", own)
    assert "a prompt" in shown.stdout
    refused = ran(tmp_path, "-m", "autocompile", "run", own, "script.py")
    assert refused.returncode == 2
    assert "is only the part for prompts of a recommendation; use" in refused.stderr
