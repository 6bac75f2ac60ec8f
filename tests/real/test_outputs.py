"""The tensors of a compiled program are assembled into the object that the model would return."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput

from autocompile.core.program import Program
from autocompile.runtime.outputs import assembler


@dataclass
class Checked(ModelOutput):
    scores: torch.Tensor = None
    made = 0

    def __post_init__(self):
        super().__post_init__()
        type(self).made += 1


@dataclass
class Plain(ModelOutput):
    scores: torch.Tensor = None
    more: torch.Tensor = None


class Renamed(Plain):
    def __init__(self, **fields):
        super().__init__(**fields)
        self.label = "renamed"


@dataclass
class Constructed(ModelOutput):
    scores: torch.Tensor = None

    def __init__(self, scores=None):
        self.scores = scores
        self.label = "renamed"
        self.__post_init__()


@dataclass
class Setting(ModelOutput):
    scores: torch.Tensor = None

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        self.__dict__["label"] = "renamed"


@dataclass(slots=True)
class Slotted(ModelOutput):
    scores: torch.Tensor = None


def assembled(output):
    """Three times the same, as later ones may be made in another way than the first."""
    tensors, spec = pytree.tree_flatten(output)
    assemble = assembler(program_for(spec, len(tensors)))
    made = []
    for _ in range(3):
        tensors = [tensor + 1 for tensor in tensors]
        made.append((assemble(tensors), tensors))
    return made


def program_for(spec, outputs):
    return Program(
        positional=0,
        keywords=(),
        input_spec="",
        guards=(),
        axes=(),
        files=(),
        output_spec=pytree.treespec_dumps(spec),
        outputs=(None,) * outputs,
    )


def test_a_librarys_record_is_as_its_constructor_makes_it():
    hidden, pooled = torch.ones(2, 3), torch.zeros(2)
    for output, tensors in assembled(BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=pooled)):
        expected = BaseModelOutputWithPooling(last_hidden_state=tensors[0], pooler_output=tensors[1])
        assert type(output) is type(expected)
        assert list(OrderedDict.items(output)) == list(OrderedDict.items(expected))
        assert list(vars(output)) == list(vars(expected))
        assert all(vars(output)[name] is value for name, value in vars(expected).items())
        assert output[0] is output.last_hidden_state is output["last_hidden_state"]
        assert output.hidden_states is None
        assert len(output.to_tuple()) == 2
        output.hidden_states = (hidden,)
        assert output["hidden_states"] == (hidden,)


def test_a_record_with_code_of_its_own_is_constructed_every_time():
    Checked.made = 0
    assembled(Checked(scores=torch.ones(2)))
    assert Checked.made == 1 + 3


@pytest.mark.parametrize("output", [(torch.ones(2),), torch.ones(2), {"a": torch.ones(1), "b": torch.ones(2)}])
def test_plain_structures(output):
    for made, tensors in assembled(output):
        assert type(made) is type(output)
        assert all(one is other for one, other in zip(pytree.tree_leaves(made), tensors, strict=True))


@pytest.mark.parametrize("kind", [Renamed, Constructed, Setting])
def test_what_else_a_class_does_is_done_every_time(kind):
    for made, _tensors in assembled(kind(scores=torch.ones(2))):
        assert made.label == "renamed"


def test_fields_may_be_slots():
    for made, tensors in assembled(Slotted(scores=torch.ones(2))):
        assert made.scores is tensors[0]


def test_two_outputs_that_are_one_tensor_at_first_are_told_apart_later():
    one, other = torch.ones(2), torch.zeros(2)
    tensors, spec = pytree.tree_flatten(Plain(scores=one, more=other))
    assemble = assembler(program_for(spec, 2))
    both = assemble([one, one])
    assert both.scores is both.more is one
    for _ in range(2):
        made = assemble(tensors)
        assert made.scores is one
        assert made.more is other
