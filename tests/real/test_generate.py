"""Text generation with `generate` of transformers: the decode step is tuned, and the tokens stay the same."""

import re
import subprocess
import sys
from functools import partial

import pytest
import torch
from laboratory import reply_to
from msgspec.structs import replace
from places import REPOSITORY
from torch.utils.data import DataLoader
from transformers import (
    DynamicCache,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    StoppingCriteriaList,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation.stopping_criteria import MaxLengthCriteria
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from verdicts import is_undecided

import autocompile
from autocompile.artifact.integrity import open_manifest, write_manifest
from autocompile.artifact.texts import Part, Texts
from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import CaptureTask, Limits
from autocompile.core.outcome import Failure, Generated, Measurement
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.core.workload import Workload
from autocompile.runtime.snippet import snippet
from autocompile.trial.check.texts import as_it_is, generate_beside, with_parts
from autocompile.workload.generating.asked import generation_by
from autocompile.workload.generating.cache_argument import cache_field
from autocompile.workload.generating.caches import PreallocatedCache

# On a busy machine, two threads that wait for each other are slow, and a decode step has many short operators.
pytestmark = pytest.mark.usefixtures("one_thread")
CACHE = cache_field(CausalLMOutputWithPast)
OPENVINO = Plan(runtime="openvino")
SMALL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 120}
WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama():
    config = LlamaConfig(**SMALL, **WIDTHS, intermediate_size=64, num_key_value_heads=2, max_position_embeddings=256)
    return LlamaForCausalLM(config)


def gpt2():
    return GPT2LMHeadModel(GPT2Config(**SMALL, n_embd=32, n_layer=2, n_head=4, n_positions=256))


def opt():
    return OPTForCausalLM(OPTConfig(**SMALL, **WIDTHS, ffn_dim=64, word_embed_proj_dim=32))


def mistral():
    return MistralForCausalLM(
        MistralConfig(**SMALL, **WIDTHS, intermediate_size=64, num_key_value_heads=4, sliding_window=8)
    )


def made(kind):
    torch.manual_seed(0)
    return kind().eval()


def prompts():
    """Two, of which the second is filled up on its left."""
    ids = torch.arange(3, 23).reshape(2, 10)
    mask = torch.ones_like(ids)
    ids[1, :4], mask[1, :4] = 0, 0
    return {"inputs": ids, "attention_mask": mask}


def seen(model, **settings):
    arguments = {**prompts(), "max_new_tokens": 12, **settings}
    return generation_by(model.generate, arguments)


def texts_of(generation, decode=None):
    return Texts(generation.model, Part(decode or generation.decoding, generation.entry))


def by(texts, model, **settings):
    torch.manual_seed(1)
    return texts.generate({**prompts(), **settings}, GenerationMixin.generate)


def plainly(model, **settings):
    torch.manual_seed(1)
    return model.generate(**prompts(), **settings)


@pytest.mark.parametrize("kind", [llama, gpt2, opt])
def test_a_decode_step_computes_what_the_model_does_and_can_be_exported(kind):
    model = made(kind)
    generation = seen(model)
    assert generation.entry.capacity == 64
    assert generation.entry.new_tokens == 11
    with torch.no_grad():
        for sample in generation.samples:
            logits, added = generation.decoding(*sample.args)
            assert logits.shape == (2, 1, 120)
            traced = torch.export.export(generation.decoding, sample.args, strict=False).module()
            again, also_added = traced(*sample.args)
            torch.testing.assert_close(again, logits)
            torch.testing.assert_close(also_added, added)


@pytest.mark.parametrize("kind", [llama, gpt2, opt])
@pytest.mark.parametrize("settings", [{}, {"do_sample": True, "top_k": 20}, {"repetition_penalty": 1.3}], ids=str)
def test_generate_gives_the_same_tokens_also_beyond_the_memory_that_was_there(kind, settings):
    model = made(kind)
    texts = texts_of(seen(model))
    asked = {"max_new_tokens": 80, **settings}
    assert torch.equal(by(texts, model, **asked), plainly(model, **asked))
    assert texts.texts == 1
    assert not texts.left


def test_what_generate_returns_beside_the_tokens_is_there_too():
    model = made(llama)
    asked = {"max_new_tokens": 6, "return_dict_in_generate": True, "output_logits": True}
    ours, plain = by(texts_of(seen(model)), model, **asked), plainly(model, **asked)
    assert torch.equal(ours.sequences, plain.sequences)
    torch.testing.assert_close(ours.logits, plain.logits)
    for layer, own in zip(ours[CACHE].layers, plain[CACHE].layers, strict=True):
        torch.testing.assert_close(layer.keys, own.keys)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_beams": 2}, "it generates by beam search, and not token by token"),
        ({"use_cache": False}, "it generates without a cache (use_cache=False)"),
        ({"cache_implementation": "static"}, "it is called with cache_implementation='static'"),
        (
            {"output_hidden_states": True, "return_dict_in_generate": True},
            "it returns hidden states or attentions, which a tuned decode step does not have",
        ),
    ],
    ids=lambda one: str(one)[:24],
)
def test_what_generates_otherwise_is_left_to_the_model(settings, reason):
    model = made(llama)
    texts = texts_of(seen(model))
    asked = {"max_new_tokens": 6, **settings}
    assert_same(by(texts, model, **asked), plainly(model, **asked))
    assert texts.left == {f"calls of generate: {reason}": 1}
    # The same if the model or a separate configuration has the setting.
    texts.left.clear()
    model.generation_config.update(**settings)
    own = {"generation_config": GenerationConfig(max_new_tokens=6, pad_token_id=0)}
    assert_same(by(texts, model, **own), plainly(model, **own))
    assert texts.left == {f"calls of generate: {reason}": 1}
    assert texts.texts == 0


def assert_same(ours, plain):
    """Tokens, and what comes beside them."""
    if isinstance(plain, torch.Tensor):
        assert torch.equal(ours, plain)
        return
    assert torch.equal(ours.sequences, plain.sequences)
    assert len(ours.hidden_states) == len(plain.hidden_states)
    assert all(one is not None for one in ours.hidden_states)


def test_a_cache_that_the_user_gives_is_the_users():
    model = made(llama)
    texts, cache = texts_of(seen(model)), DynamicCache()
    by(texts, model, max_new_tokens=6, **{CACHE: cache})
    assert cache.get_seq_length() == 15
    assert texts.left == {f"calls of generate: it is called with {CACHE}": 1}


def t5():
    config = T5Config(
        vocab_size=120, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        (t5, {}, "the model has an encoder, which has a different cache"),
        (mistral, {}, "its cache has a DynamicSlidingWindowLayer, and only layers that keep all tokens are supported"),
        (llama, {"num_beams": 3}, "it generates by beam search, and not token by token"),
    ],
    ids=["encoder", "window", "beams"],
)
def test_what_cannot_be_tuned_is_told(kind, settings, reason):
    model = made(kind)
    with pytest.raises(InvalidWorkload, match=re.escape(f"its decode step cannot be tuned: {reason}")):
        seen(model, **settings)


def test_a_function_that_generates_is_recognized_and_another_is_not():
    model, ids = made(llama), prompts()["inputs"]
    before, asked = torch.get_rng_state(), {"inputs": ids, "max_new_tokens": 4}
    model.model.layers[0].train()
    modes = [part.training for part in model.modules()]
    assert generation_by(model.generate, asked).model is model
    assert generation_by(partial(model.generate, max_new_tokens=4), ids).model is model
    assert generation_by(model.generate, (ids, GenerationConfig(max_new_tokens=4))).model is model
    assert [part.training for part in model.modules()] == modes
    assert generation_by(lambda x: model.generate(x, do_sample=True, max_new_tokens=4), ids).model is model
    assert generation_by(lambda x: model(x).logits, ids) is None
    assert generation_by(model, ids) is None
    assert generation_by(model.generate, {"inputs": ids, "max_new_tokens": 1}) is None
    assert generation_by(lambda x: model.generate(x, nothing=1), ids) is None
    called = []
    assert generation_by(called.append, ids) is None
    assert generation_by(lambda batch: batch + 1, DataLoader(ids)) is None
    assert not called
    assert torch.equal(torch.get_rng_state(), before)


class Talks(LlamaForCausalLM):
    """Has a way to generate of its own."""

    def generate(self, ids, new=8):
        return super().generate(ids, max_new_tokens=new)

    def chat(self, ids):
        return self.generate(ids, new=5)


def test_a_class_with_a_generate_of_its_own_is_tuned_and_its_methods_are_served():
    torch.manual_seed(0)
    model, ids = Talks(llama().config).eval(), prompts()["inputs"]
    generation = generation_by(model.chat, ids)
    steps = []

    def decode(*inputs):
        steps.append(inputs)
        return generation.decoding(*inputs)

    standing = Texts(model, Part(decode, generation.entry)).standing
    assert torch.equal(standing.chat(ids), model.chat(ids))
    assert len(steps) == 4
    found = generate_beside(*sides(generation, generation.decoding), model, generation.texts, 1.0)
    assert isinstance(found, Generated), found


def sides(generation, decode):
    model, entry = generation.model, generation.entry
    return as_it_is(model, lambda: None), with_parts(Texts(model, Part(decode, entry)), lambda: None)


def test_a_cache_that_was_put_in_another_order_is_read_in_that_order():
    cache = PreallocatedCache(1, 8)
    cache.update(torch.arange(12.0).reshape(2, 1, 3, 2), torch.ones(2, 1, 3, 2), 0)
    before = cache.memory
    cache.reorder_cache(torch.tensor([1, 0]))
    keys, _values = cache.memory[0]
    assert torch.equal(keys[:, :, :3], before[0][0].flip(0)[:, :, :3])
    cache.reset()
    cache.update(torch.ones(3, 1, 9, 2), torch.ones(3, 1, 9, 2), 0)
    assert cache.memory[0][0].shape == (3, 1, 16, 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_sample": True, "num_return_sequences": 2},
        {"max_time": 60.0, "max_new_tokens": 3},
        {"max_new_tokens": None, "max_length": 13},
        {"stopping_criteria": StoppingCriteriaList([MaxLengthCriteria(12)])},
    ],
    ids=["several texts", "time", "length", "criteria"],
)
def test_texts_of_all_kinds_are_repeated_greedily(settings):
    generation = seen(made(llama), **settings)
    found = generate_beside(*sides(generation, generation.decoding), generation.model, generation.texts, 1.0)
    assert isinstance(found, Generated), found
    assert found.tokens
    assert not found.skipped


def test_calls_that_generate_otherwise_do_not_keep_others_from_being_tuned():
    model, ids = made(llama), prompts()["inputs"]

    def several(x):
        model.generate(x, max_new_tokens=6, num_beams=2)
        model.generate(x, max_new_tokens=6)

    generation = generation_by(several, ids)
    assert generation.entry.new_tokens == 5
    assert generation.entry.texts == 1


FAULTS = {
    "the cache gets nothing": lambda logits, added: (logits, [(k * 0, v * 0) for k, v in added]),
    "another token is the likeliest": lambda logits, added: (-logits, added),
    "the texts of a batch are exchanged": lambda logits, added: (logits.flip(0), added),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_other_tokens_than_eagers_are_a_wrong_result(fault):
    model = made(llama)
    generation = seen(model)

    def decode(*inputs):
        return FAULTS[fault](*generation.decoding(*inputs))

    eager = as_it_is(model, lambda: None)
    wrong = with_parts(Texts(model, Part(decode, generation.entry)), lambda: None)
    found = generate_beside(eager, wrong, model, generation.texts, 2.0)
    assert isinstance(found, Failure)
    assert found.kind == "wrong_result"
    assert re.fullmatch(
        r"generate returns other tokens than eager: new token \d+ of a text is \d+, not \d+", found.message
    )


def test_the_same_tokens_are_counted_and_timed_in_pairs():
    model = made(llama)
    generation = seen(model)
    eager = as_it_is(model, lambda: None)
    own = with_parts(texts_of(generation), lambda: None)
    found = generate_beside(eager, own, model, generation.texts, 2.0)
    assert isinstance(found, Generated)
    assert found.tokens >= 2 * 2 * 8  # the prompts, and their tokens in another order
    assert found.speedup.low <= found.speedup.value <= found.speedup.high


@pytest.fixture
def packed(laboratory):
    """The decode step of a model, compiled ahead, and how it was measured as it is loaded."""
    model = made(llama)
    generation = seen(model)
    laboratory.prepare(generation.decoding, list(generation.samples), generation=generation)
    directory = laboratory.pack(OPENVINO, Serving("openvino", "load"))
    assert not isinstance(directory, Failure), directory
    return model, laboratory, directory


def test_what_is_loaded_generates_the_same_tokens_by_the_program(packed):
    model, laboratory, directory = packed
    task = replace(laboratory.task(OPENVINO, str(directory)), learning_s=2.0)
    measured = reply_to(laboratory.runner, task, Limits(120.0), cache="loaded")
    assert isinstance(measured, Measurement), measured
    assert measured.generated.tokens > 0
    loaded = autocompile.load(directory, model)
    asked = {"max_new_tokens": 40, "do_sample": False}
    assert torch.equal(loaded.generate(**prompts(), **asked), model.generate(**prompts(), **asked))
    assert loaded.status.calls == {"openvino": 39}
    assert not loaded.status.fallbacks
    ids = prompts()["inputs"]
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits)
    # Longer than the cache of the program: the model itself computes the rest, and this is reported.
    assert torch.equal(loaded.generate(ids, max_new_tokens=70), model.generate(ids, max_new_tokens=70))
    (fallback,) = loaded.status.fallbacks
    assert "has shape" in fallback.reason
    loaded.generate(ids, max_new_tokens=6, num_beams=2)
    assert "decode steps of another kind" in loaded.status.fallbacks[-1].reason


def test_an_eager_recommendation_leaves_the_steps_to_the_model_with_its_own_cache(packed, tmp_path):
    model, _laboratory, directory = packed
    nothing = {"files": (), "programs": (), "weights": {}, "standby": None}
    eager = {"plan": Plan(threads=1), "serving": Serving("eager", "none"), "label": "eager threads=1"}
    write_manifest(tmp_path, replace(open_manifest(directory), **nothing, **eager))
    loaded = autocompile.load(tmp_path, model)
    asked = {"max_new_tokens": 6, "return_dict_in_generate": True}
    ours, plain = loaded.generate(**prompts(), **asked), model.generate(**prompts(), **asked)
    assert torch.equal(ours.sequences, plain.sequences)
    assert type(ours[CACHE]) is DynamicCache
    assert loaded.status.calls == {"eager": 5}
    assert not loaded.status.fallbacks


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch's own exporter of itself
@pytest.mark.parametrize("plan", [OPENVINO, Plan(runtime="inductor", settings={"backend": "eager"})], ids=["o", "i"])
def test_the_snippet_generates_the_same_tokens_without_this_library(plan):
    model, ids = made(llama), torch.arange(3, 23).reshape(2, 10)
    code = snippet(plan, device_type="cpu", is_module=True, generation=seen(model).entry)
    assert "autocompile" not in code
    names = {"model": model}
    exec(code, names)
    asked = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    assert torch.equal(names["generate"](ids, 12), model.generate(ids, **asked))
    with pytest.raises(ValueError, match="the cache has room for"):
        names["generate"](ids, 80)


SCRIPT = """\
import sys
import torch
torch.set_num_threads(1)
from transformers import LlamaConfig, LlamaForCausalLM

def build(width):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=120, hidden_size=width, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return LlamaForCausalLM(config).eval()

model = build(48 if "other" in sys.argv else 32)
asked = {"num_beams": 2} if "beams" in sys.argv else {}
for length in (5, 9, 7):
    text = model.generate(torch.arange(3, 3 + length)[None], max_new_tokens=20, do_sample=False, **asked)
    print(text.tolist())
"""
DRIVER = """
import sys
import torch
torch.set_num_threads(1)
from pathlib import Path
from autocompile.artifact.generated_script import GeneratedScript
from autocompile.workload.watching.main import run_as_main
served = GeneratedScript(Path(sys.argv[1]))
with served.applied():
    run_as_main(Path(sys.argv[2]), sys.argv[3:])
for one in served.services():
    print(one.kind, one.calls, one.left, one.notes, file=sys.stderr)
print(served.others, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def script(runner, tmp_path_factory):
    """A directory with a script that generates, what was seen of it, and an artifact of its decode step."""
    from laboratory import Laboratory

    directory = tmp_path_factory.mktemp("generating")
    (directory / "script.py").write_text(SCRIPT)
    (directory / "driver.py").write_text(DRIVER)
    task = CaptureTask(str(directory / "script.py"), str(directory / "workload"))
    workload = reply_to(runner, task, Limits(120.0), cache="capture")
    assert isinstance(workload, Workload), workload
    laboratory = Laboratory(runner, directory)
    laboratory.workload, laboratory.reference = workload, str(directory / "reference.pt")
    laboratory.profile()
    packed = laboratory.pack(OPENVINO, Serving("openvino", "load"))
    write_manifest(packed, replace(open_manifest(packed), label="recommended"))
    return directory, workload, packed


def ran(directory, *command):
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=directory, capture_output=True, text=True, check=False
    )


def test_a_script_that_generates_is_seen_to(script):
    _directory, workload, _packed = script
    assert workload.kind == "generation"
    assert (workload.generation.texts, workload.generation.new_tokens, workload.script.calls) == (3, 57, 57)
    assert workload.script.module == "LlamaForCausalLM"
    assert any("asked to generate 3 times, in 57 decode steps" in note for note in workload.notes)
    assert any(note.startswith("prompts took ") for note in workload.notes)


@pytest.mark.parametrize("what", ["", "beams", "other"])
def test_a_script_prints_the_same_tokens_with_a_recommendation(script, what):
    directory, _workload, packed = script
    plain, ours = ran(directory, "script.py", what), ran(directory, "driver.py", packed, "script.py", what)
    assert ours.returncode == plain.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout
    if what == "other":
        assert "{'LlamaForCausalLM': " in ours.stderr
        assert "generation" not in ours.stderr
    elif what == "beams":
        assert "{'calls of generate: it generates by beam search, and not token by token': 3}" in ours.stderr
    else:
        assert "generation {'openvino': 57} {} ('3 texts, " in ours.stderr


QUICK = """
[search]
max_trials = 2
[dimensions]
runtime = ['openvino']
amp = ['off']
threads = [0]
[screening]
precision = 0.2
limit_s = 0.5
[finals]
candidates = 1
processes = 1
limit_s = 0.5
"""


def test_the_example_is_tuned_and_run_as_it_is(tmp_path):
    example, small = REPOSITORY / "examples" / "scripts" / "generate.py", "--width 32 --layers 2 --prompts 4"
    (tmp_path / "quick.toml").write_text(QUICK)
    tune = ("-m", "autocompile", "tune", example, "--budget", "300s", "--calls", "1000000", "--strategy", "quick.toml")
    tuned = ran(tmp_path, *tune, "--output", "rec", "--", *small.split())
    assert tuned.returncode == 0, tuned.stderr
    if "leave it eager" not in tuned.stdout or not is_undecided(tuned.stdout):
        assert re.search(r"openvino: [\d.,]+ tokens a second, eager [\d.,]+", tuned.stdout)
    plain = ran(tmp_path, example, *small.split())
    run = ran(tmp_path, "-m", "autocompile", "run", "rec", example, *small.split())
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[:4] == plain.stdout.splitlines()[:4]
    assert re.search(r"autocompile: LlamaForCausalLM as \w+.*: decode steps 188 by \w+", run.stderr)
