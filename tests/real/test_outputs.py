"""What a compiled program's tensors become: the object that the model would have returned."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput

from autocompile.artifact.outputs import assembler
from autocompile.core.manifest import Program


@dataclass
class Checked(ModelOutput):
    scores: torch.Tensor = None
    made = 0

    def __post_init__(self):
        super().__post_init__()
        type(self).made += 1


@dataclass
class Undecorated(ModelOutput):
    scores: torch.Tensor = None


class Renamed(Undecorated):
    def __init__(self, **fields):
        super().__init__(**fields)
        self.label = "renamed"


def assembled(output):
    """Three times the same, as later ones may be made in another way than the first."""
    tensors, spec = pytree.tree_flatten(output)
    program = Program(
        file="",
        positional=0,
        keywords=(),
        input_spec="",
        guards=(),
        axes=(),
        weights=(),
        constants_file="",
        output_spec=pytree.treespec_dumps(spec),
        outputs=(None,) * len(tensors),
    )
    assemble = assembler(program)
    made = []
    for _ in range(3):
        tensors = [tensor + 1 for tensor in tensors]
        made.append((assemble(tensors), tensors))
    return made


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


def test_a_subclass_with_a_constructor_of_its_own_is_constructed_every_time():
    for made, _tensors in assembled(Renamed(scores=torch.ones(2))):
        assert made.label == "renamed"
