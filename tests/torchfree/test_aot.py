"""Programs compiled ahead of time, from the view of the modules that decide."""

from dataclasses import replace

import msgspec
import pytest
from builders import failure

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import to_plain
from autocompile.runtime.aot.kind import KIND
from autocompile.runtime.aot.package import Constant, Package, package_of
from autocompile.search.choose.alike import fails_alike
from autocompile.space.surroundings import Surroundings

CPU = Surroundings(device_type="cpu", cores=4, is_module=True, has_conv=True, signature_count=1)
GPU = replace(CPU, device_type="cuda")
PLAIN = {"freezing": False, "memory_format": "preserve", "mode": "default", "sizes": "free"}


@pytest.mark.parametrize(
    ("values", "around", "said"),
    [
        ({}, CPU, ""),
        ({"memory_format": "channels_last"}, CPU, "must use the model's memory format"),
        ({"memory_format": "channels_last", "freezing": True}, CPU, ""),
        ({"mode": "max-autotune"}, CPU, "tuned matrix products on a CPU have copies of the weights"),
        ({"mode": "max-autotune", "freezing": True}, CPU, ""),
        ({"mode": "max-autotune-no-cudagraphs"}, GPU, ""),
        ({"mode": "max-autotune"}, GPU, "has the sizes of one call: it needs sizes=fixed"),
        ({"mode": "max-autotune", "sizes": "fixed"}, GPU, ""),
        ({"mode": "reduce-overhead", "freezing": True}, GPU, "has the sizes of one call"),
        ({"mode": "reduce-overhead", "freezing": True, "sizes": "fixed"}, GPU, ""),
        ({"mode": "reduce-overhead"}, replace(GPU, free_batch=False), ""),
        ({"mode": "reduce-overhead"}, replace(GPU, free_batch=False, signature_count=2), "has the sizes of one call"),
        ({"mode": "max-autotune"}, replace(CPU, is_module=False), ""),
        ({"mode": "max-autotune"}, replace(CPU, has_matrix_products=False), ""),
        ({"mode": "reduce-overhead"}, CPU, ""),
    ],
)
def test_copies_of_the_weights_go_with_frozen_ones_and_graphs_with_fixed_sizes(values, around, said):
    conflict = KIND.conflict({**PLAIN, **values}, around)
    assert said in conflict
    assert bool(said) == bool(conflict)


def test_a_plan_of_any_runtime_has_one_on_live_weights():
    options = {"freezing": True, "max_autotune": True}
    own = Plan("aot", {"options": options}, autocast="bfloat16", memory_format="channels_last", threads=2, batch=4)
    live = KIND.on_live_weights(own)
    assert live == Plan("aot", autocast="bfloat16", threads=2, batch=4)
    assert KIND.holds_weights(own)
    assert not KIND.holds_weights(live)
    other = Plan("other", {"options": {"level": 3}, "streams": 2}, autocast="bfloat16", threads=2)
    assert KIND.on_live_weights(other) == Plan("aot", autocast="bfloat16", threads=2)


def test_what_cannot_be_captured_closes_all_that_would_be_and_nothing_else():
    graphs = {"options": {"triton.cudagraphs": True}}
    own = Plan("aot", graphs, sizes="fixed")
    refused = failure("unsupported", "pack", "its calls cannot be captured as a CUDA graph: CUDA error")
    because = msgspec.structs.replace(refused, cause="capture")
    tuned = Plan("aot", {"options": {"max_autotune": True, "triton.cudagraphs": True}}, "bfloat16", sizes="fixed")
    assert fails_alike(because, own, tuned)
    assert not fails_alike(refused, own, tuned), "as where memory ran out"
    for other in (Plan("aot", sizes="fixed"), Plan("inductor", graphs), Plan("aot", graphs, batch=4, sizes="fixed")):
        assert not fails_alike(because, own, other)


def test_its_snippet_exports_and_compiles_with_its_options():
    lines = "\n".join(KIND.lines(Plan("aot", {"options": {"freezing": True}}, autocast="bfloat16")).setup)
    assert "inductor_configs={'freezing': True}" in lines
    assert "dtype=torch.bfloat16):\n            return self.model(*args, **kwargs)" in lines
    assert "dtype=torch." not in "\n".join(KIND.lines(Plan("aot")).setup)


def test_a_record_is_what_it_was_written_as_and_names_its_own_files_only():
    constant = Constant("weight", "float32", (2, 3), (), 64, 128, layout=b"\x00\xff")
    package = Package("code", ("code/a.so",), constants=(constant,), constants_file="constants", constants_bytes=192)
    program = Program(1, (), "", (), (), "", (None,), files=package.files, own=to_plain(package))
    assert package_of(program) == package
    for fields in ({"code": "other"}, {"constants_file": "../constants"}, {"code_files": []}, {"constants": 3}):
        with pytest.raises(ValueError, match=r"not one of its files|Expected"):
            package_of(Program(1, (), "", (), (), "", (), files=package.files, own={**program.own, **fields}))
