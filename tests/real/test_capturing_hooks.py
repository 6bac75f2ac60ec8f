"""Models of transformers that return hidden states, in other processes and behind compiled programs."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from autocompile.runtime.model_watch import Watch, has_hooks
from autocompile.workload import pickling
from autocompile.workload.capturing_hooks import is_capturing
from autocompile.workload.identity.facts import attribute_texts

_CALL = """
import pickle, sys, torch
model, ids = pickle.load(open(sys.argv[1], "rb"))
print(len(model(ids, output_hidden_states=True).hidden_states))
"""
_LAYERS = 2


@pytest.fixture
def model():
    size = {"hidden_size": 16, "num_hidden_layers": _LAYERS, "num_attention_heads": 2, "intermediate_size": 16}
    return BertModel(BertConfig(vocab_size=50, **size)).eval()


@pytest.fixture
def ids():
    return torch.randint(0, 50, (2, 5))


@pytest.mark.parametrize("is_called", [False, True])
def test_another_process_gets_the_hidden_states(model, ids, is_called, tmp_path: Path):
    if is_called:
        model(ids, output_hidden_states=True)
    with (tmp_path / "model").open("wb") as file:
        pickling.Pickler(file).dump((model, ids))
    done = subprocess.run(
        [sys.executable, "-c", _CALL, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(_LAYERS + 1)], done.stderr


def test_pickling_leaves_the_model_as_it_is(model, ids, tmp_path: Path):
    model(ids, output_hidden_states=True)
    before = [dict(module._forward_hooks) for module in model.modules()]
    with (tmp_path / "model").open("wb") as file:
        pickling.Pickler(file).dump(model)
    assert [dict(module._forward_hooks) for module in model.modules()] == before
    assert len(model(ids, output_hidden_states=True).hidden_states) == _LAYERS + 1


def test_a_users_hook_is_pickled(model, ids, tmp_path: Path):
    model(ids, output_hidden_states=True)
    model.encoder.layer[0].register_forward_hook(_double)
    with (tmp_path / "model").open("wb") as file:
        pickling.Pickler(file).dump(model)
    with (tmp_path / "model").open("rb") as file:
        again = pickle.load(file)
    hooks = list(again.encoder.layer[0]._forward_hooks.values())
    assert [hook.__name__ for hook in hooks] == ["_double"]
    torch.testing.assert_close(again(ids).last_hidden_state, model(ids).last_hidden_state)


def test_they_do_not_count_as_hooks(model, ids):
    watch = Watch(model)
    model(ids, output_hidden_states=True)
    assert any(map(is_capturing, model.encoder.layer[0]._forward_hooks.values()))
    assert not has_hooks(model)
    assert not watch.changed()
    handle = model.encoder.layer[0].register_forward_hook(_double)
    assert has_hooks(model)
    assert watch.changed() == "the model has hooks"
    handle.remove()
    assert not watch.changed()


def test_the_model_has_the_same_attributes_after_a_call(model, ids):
    before = attribute_texts(model)
    model(ids, output_hidden_states=True)
    assert attribute_texts(model) == before


def _double(_module, _args, output):
    return tuple(2 * one for one in output) if isinstance(output, tuple) else 2 * output


class WithState(BertModel):
    def __getstate__(self):
        return {"config": self.config, "held": self.state_dict()}

    def __setstate__(self, state):
        self.__init__(state["config"])
        self.load_state_dict(state["held"])


class Reduced(BertModel):
    def __reduce__(self):
        return Reduced, (self.config,)


@pytest.mark.parametrize("kind", [WithState, Reduced])
def test_a_classs_own_way_of_pickling_is_kept(kind, model, ids, tmp_path: Path):
    own = kind(model.config).eval()
    own(ids, output_hidden_states=True)
    own.drawing = (one for one in ())  # which cannot be pickled
    with (tmp_path / "model").open("wb") as file:
        pickling.Pickler(file).dump(own)
    with (tmp_path / "model").open("rb") as file:
        again = pickle.load(file)
    assert type(again) is kind
    assert not hasattr(again, "drawing")
