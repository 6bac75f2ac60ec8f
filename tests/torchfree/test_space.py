import dataclasses
import itertools

import pytest
from msgspec.structs import replace

from autocompile.core.environment import GpuKind
from autocompile.core.plan import AxisRange, Plan
from autocompile.core.profile import RepeatedBlock
from autocompile.core.tolerance import published_tolerance
from autocompile.core.workload import TrainingEntry
from autocompile.runtime import catalogue
from autocompile.runtime.catalogue import dimensions, kinds, open_space
from autocompile.runtime.compiler_options import MODES
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.kind import Kind
from autocompile.runtime.snippet import snippet
from autocompile.space.dimension import Choice, Dimension
from autocompile.space.surroundings import Surroundings

BLOCKS = (RepeatedBlock("Layer", ("layers.0", "layers.1")),)
TURING, HOPPER = GpuKind("Tesla T4", "7.5", 40), GpuKind("NVIDIA H100", "9.0", 132)
GPU = Surroundings("cuda", 16, True, True, 3, blocks=BLOCKS)
CPU = Surroundings("cpu", 4, True, True, 3, blocks=BLOCKS)
MISSING = tuple((kind.name, "it is not installed") for kind in kinds() if kind.library)
BARE = Surroundings(
    "cpu", 1, False, False, 1, has_matrix_products=False, compiler_problem="there is no compiler", missing=MISSING
)
EVERYWHERE = (GPU, CPU, BARE)
ALL = {dimension.name: () for dimension in dimensions()}


def space_of(around, allowed=ALL):
    return open_space(around, allowed)[0]


@pytest.mark.parametrize("dimension", dimensions(), ids=lambda d: d.name)
@pytest.mark.parametrize("around", EVERYWHERE, ids=["gpu", "cpu", "bare"])
class TestEveryDimension:
    """What each entry of the table must satisfy; a new one is picked up here."""

    def test_its_default_is_always_available_and_leaves_the_model_alone(self, dimension, around):
        default = dimension.choices(around)[0]
        assert not default.unavailable
        assert dimension.fold(Plan(), default.value, around) == Plan()

    def test_its_values_are_distinct(self, dimension, around):
        values = [choice.value for choice in dimension.choices(around)]
        assert len({(type(v), v) for v in values}) == len(values)

    def test_folding_is_pure_and_gives_a_plan(self, dimension, around):
        for choice in dimension.choices(around):
            before = compiled(options={"kept": True})
            after = dimension.fold(before, choice.value, around)
            assert isinstance(after, Plan)
            assert before == compiled(options={"kept": True})
            assert dimension.fold(before, choice.value, around) == after

    def test_it_has_a_name_and_a_meaning(self, dimension, around):
        assert dimension.name.isidentifier()
        assert dimension.meaning


def test_dimension_names_are_distinct():
    assert len({dimension.name for dimension in dimensions()}) == len(dimensions())


def test_the_baseline_is_the_empty_plan_and_plain_compile_sets_only_the_runtime():
    for around in EVERYWHERE:
        space = space_of(around)
        assert space.plan(space.baseline()) == Plan()
        assert space.plan(space.plain_compile()) == compiled()


def test_what_does_not_apply_takes_its_default():
    space = space_of(GPU)
    eager = space.candidate(runtime="eager", mode="max-autotune", freezing=True, scope="blocks", amp="bf16")
    assert eager == space.candidate(runtime="eager", amp="bf16")
    assert space.changes(eager) == {"amp": "bf16"}


def test_modes_collapse_on_a_cpu_and_not_on_a_gpu():
    def plans(around):
        space = space_of(around)
        return {space.plan(space.candidate(runtime="inductor", mode=mode)).key for mode in MODES}

    assert len(plans(GPU)) == 4
    assert len(plans(CPU)) == 2
    assert len(plans(Surroundings("cpu", 4, True, False, 1, has_matrix_products=False))) == 1


def test_candidates_that_build_one_program_are_one():
    space = space_of(CPU)
    assert space.canonical(space.candidate(runtime="inductor", mode="reduce-overhead")) == space.plain_compile()
    for candidate, plan in space.programs:
        assert space.canonical(candidate) == candidate
        assert space.plan(space.canonical(candidate)) == plan


def test_programs_are_distinct_and_simplest_first():
    programs = list(space_of(CPU).programs)
    assert len({plan.key for _candidate, plan in programs}) == len(programs)
    assert programs[0][1] == Plan()
    changes = [len(space_of(CPU).changes(candidate)) for candidate, _plan in programs]
    assert changes == sorted(changes)


BATCHES = dataclasses.replace(CPU, batches=(8, 16), varying=(AxisRange(0, 0, 2, 64),), hottest=("layers.0", "layers.1"))


@pytest.mark.parametrize("around", [*EVERYWHERE, BATCHES], ids=["gpu", "cpu", "bare", "batches"])
@pytest.mark.parametrize("allowed", [ALL, {"runtime": (), "mode": (), "amp": ("bf16",)}], ids=["all", "some"])
def test_programs_are_those_of_the_product_of_all_dimensions_in_its_order(around, allowed):
    space = space_of(around, allowed)
    names = [dimension.name for dimension in space.dimensions]
    product = itertools.product(*(space.open_values[name] for name in names))
    candidates = [space.candidate(**dict(zip(names, values, strict=True))) for values in product]
    distinct = {tuple(candidate.values.values()): candidate for candidate in candidates}
    programs = {}
    for candidate in sorted(distinct.values(), key=lambda c: len(space.changes(c))):
        if not space.conflict(candidate):
            programs.setdefault(space.plan(candidate).key, (candidate, space.plan(candidate)))
    assert space.programs == tuple(programs.values())


def effort(name):
    """A dimension that only the runtime of this name has."""
    return Dimension(
        name=f"{name}_effort",
        meaning="how hard it tries",
        choices=lambda _around: (Choice(0), Choice(1), Choice(2)),
        fold=lambda plan, value, _around: replace(plan, settings={"effort": value} if value else {}),
        applies=lambda values: values["runtime"] == name,
    )


@pytest.fixture
def other(monkeypatch):
    """One more runtime, with a dimension of its own."""

    class Other(Kind):
        name = "other"
        meaning = "another one"
        dimensions = (effort("other"),)

    here = (*kinds(), Other())
    monkeypatch.setattr(catalogue, "kinds", lambda: here)
    monkeypatch.setattr(catalogue, "_of_others", lambda: {"other": here[-1]})
    catalogue.dimensions.cache_clear()
    yield
    catalogue.dimensions.cache_clear()


def test_a_new_runtimes_own_dimensions_are_open_where_a_strategy_opens_all_runtimes(other):
    def opened(allowed):
        return space_of(CPU, allowed).open_values["other_effort"]

    assert opened({"runtime": (), "mode": ("default",)}) == (0, 1, 2)
    assert opened({"runtime": (), "other_effort": (1,)}) == (0, 1)
    assert opened({"runtime": ("inductor", "other")}) == (0,)
    assert space_of(CPU, {"runtime": ()}).open_values["mode"] == ("default",), "plain torch.compile stays plain"
    programs = space_of(CPU, {"runtime": (), "mode": ("max-autotune",)}).programs
    assert [space_of(CPU).label(c) for c, _plan in programs if c["runtime"] == "other"] == [
        "other", "other other_effort=1", "other other_effort=2",
    ]  # fmt: skip
    assert all(c["other_effort"] == 0 for c, _plan in programs if c["runtime"] != "other")


def test_cuda_graphs_of_chained_blocks_are_ruled_out_with_the_reason():
    space = space_of(GPU)
    chained = space.candidate(runtime="inductor", mode="reduce-overhead", scope="blocks")
    assert "152887" in space.conflict(chained)
    assert not space.conflict(space.candidate(runtime="inductor", scope="blocks"))
    assert not space_of(CPU).conflict(
        space_of(CPU).candidate(runtime="inductor", mode="reduce-overhead", scope="blocks")
    )


def test_products_in_tf32_are_a_choice_on_a_gpu_and_change_what_is_accepted():
    space = space_of(GPU)
    plan = space.plan(space.candidate(runtime="inductor", float32="tf32"))
    assert (plan.float32, plan.precision) == ("tf32", "tf32")
    assert published_tolerance(plan.precision).epsilon == 2**-10
    assert "torch.backends.cuda.matmul.allow_tf32 = True\n" in snippet(plan, device_type="cuda", is_module=True)
    assert "dtype" in space.conflict(space.candidate(runtime="inductor", float32="tf32", amp="bf16"))
    assert space.plan(space.candidate(runtime="aot", float32="tf32")).float32 == "tf32"
    assert space.candidate(runtime="onnxruntime", float32="tf32")["float32"] == "given", (
        "it does not mean anything there"
    )
    assert space_of(CPU).open_values["float32"] == ("given",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"multiplies_in_tf32": True}, "torch is already set to use TF32"),
        ({"gpus": (TURING,)}, "Tesla T4 has compute capability 7.5, and TF32 begins with 8.0"),
        ({"gpus": (HOPPER, TURING)}, "Tesla T4 has compute capability 7.5"),
        ({"reduced_precision": True}, "the model is in reduced precision already"),
        ({"has_matrix_products": False}, "the model has no matrix product"),
        ({"training": TrainingEntry("AdamW"), "in_script": True}, "it is a setting of the process"),
    ],
)
def test_why_products_are_not_tried_in_tf32_is_said(changes, said):
    _space, left_out = open_space(dataclasses.replace(GPU, **changes), ALL)
    assert dict(left_out)["float32=tf32"].startswith(said)


def test_products_are_tried_in_tf32_on_a_gpu_that_has_it():
    _space, left_out = open_space(dataclasses.replace(GPU, gpus=(HOPPER,)), ALL)
    assert "float32=tf32" not in dict(left_out)


def test_attention_as_separate_products_is_a_choice_on_a_cpu_for_models_with_fused_attention():
    fused = dataclasses.replace(CPU, fuses_attention=True)
    space = space_of(fused)
    plan = space.plan(space.candidate(runtime="inductor", amp="bf16", attention="math"))
    assert (plan.attention, plan.precision) == ("math", "bfloat16")
    assert space.label(space.candidate(attention="math")) == "eager attention=math"
    assert space.plan(space.candidate(runtime="aot", attention="math")).attention == "math"
    for name in ("onnxruntime", "openvino"):
        assert space.candidate(runtime=name, attention="math")["attention"] == "given"
    assert "torch.backends.cuda.enable_flash_sdp(False)" in snippet(plan, device_type="cpu", is_module=True)
    assert "flash" not in snippet(replace(plan, attention=""), device_type="cpu", is_module=True)
    _space, left_out = open_space(CPU, ALL)
    assert "fused kernel" in dict(left_out)["attention=math"]
    assert space_of(dataclasses.replace(GPU, fuses_attention=True)).open_values["attention"] == ("given",)


def test_what_is_not_possible_is_left_out_with_its_reason():
    space, left_out = open_space(BARE, ALL)
    assert not {"inductor", "aot"} & {*space.open_values["runtime"]}
    reasons = dict(left_out)
    assert reasons["runtime=inductor"] == "there is no compiler"
    assert "function" in reasons["freezing=True"]
    assert "matrix product" in reasons["amp=bf16"]
    assert "blocks" in reasons["scope=blocks"]
    alone, _ = open_space(BARE, {"runtime": ("eager",)})
    assert list(alone.programs) == [(alone.baseline(), Plan())]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"signature_count": 2}, "the given calls differ in size"),
        ({"free_batch": False}, "the batch cannot vary, so the sizes are fixed anyway"),
        ({"loads_artifacts": False}, "without an artifact, each program is made for its own call anyway"),
    ],
)
def test_sizes_are_fixed_only_where_that_is_another_program(changed, said):
    one = dataclasses.replace(CPU, signature_count=1)
    assert space_of(one).open_values["sizes"] == ("free", "fixed")
    space, left_out = open_space(dataclasses.replace(one, **changed), ALL)
    assert space.open_values["sizes"] == ("free",)
    assert ("sizes=fixed", said) in left_out


def test_what_cannot_be_checked_closes_every_runtime_but_eager_and_a_missing_compiler_only_some(monkeypatch):
    class Other(Kind):
        name = "other"
        meaning = "needs no compiler of torch's"

    monkeypatch.setattr(catalogue, "kinds", lambda: (*kinds(), Other()))
    without = dataclasses.replace(CPU, compiler_problem="there is no compiler")
    random = dataclasses.replace(CPU, unverifiable="the model is random by nature")
    still_open = space_of(without).open_values["runtime"]
    assert (still_open[0], still_open[-1]) == ("eager", "other")
    assert not {"inductor", "aot"} & {*still_open}
    space, left_out = open_space(random, ALL)
    assert space.open_values["runtime"] == ("eager",)
    assert dict(left_out) == {
        **dict(open_space(CPU, ALL)[1]),
        **{f"runtime={kind.name}": "the model is random by nature" for kind in catalogue.kinds()[1:]},
    }
    both = dataclasses.replace(without, unverifiable="the model is random by nature")
    assert dict(open_space(both, ALL)[1])["runtime=inductor"] == "there is no compiler"


def test_what_draws_random_numbers_is_open_to_runtimes_that_can_draw_the_same_ones():
    space, left_out = open_space(dataclasses.replace(CPU, draws=True), ALL)
    assert space.open_values["runtime"] == ("eager", "inductor")
    for name in ("aot", "openvino", "onnxruntime"):
        assert "the model draws random numbers" in dict(left_out)[f"runtime={name}"]


def test_a_runtime_says_what_its_dimensions_come_to_here():
    told = [note for kind in kinds() for note in kind.notes(CPU)]
    assert told == [("mode", "a CPU has no CUDA graphs, so reduce-overhead is the same as default")]
    assert [note for kind in kinds() for note in kind.notes(GPU)] == []


def test_a_strategy_can_only_narrow():
    space = space_of(CPU, {"runtime": (), "mode": ("max-autotune", "no-such-mode")})
    assert space.open_values["mode"] == ("default", "max-autotune")
    assert space.open_values["amp"] == ("off",)


def test_labels_tell_what_differs():
    space = space_of(CPU)
    assert space.label(space.baseline()) == "eager"
    assert space.label(space.candidate(runtime="inductor", amp="bf16", threads=1)) == "inductor amp=bf16 threads=1"


@pytest.mark.parametrize("around", EVERYWHERE, ids=["gpu", "cpu", "bare"])
def test_every_snippet_is_python_and_names_this_library_nowhere(around):
    for _candidate, plan in space_of(around).programs:
        code = snippet(plan, device_type=around.device_type, is_module=around.is_module)
        compile(code, "snippet", "exec")
        assert "autocompile" not in code


def test_snippets_use_a_mode_by_name_where_there_is_one():
    plan = space_of(GPU).plan(space_of(GPU).candidate(runtime="inductor", mode="max-autotune"))
    assert "torch.compile(model, mode='max-autotune')" in snippet(plan, device_type="cuda", is_module=True)
    frozen = space_of(GPU).plan(space_of(GPU).candidate(runtime="inductor", freezing=True))
    assert "options={'freezing': True}" in snippet(frozen, device_type="cuda", is_module=True)


def test_a_snippet_copies_what_cuda_graphs_would_overwrite():
    space = space_of(GPU)
    graphs = space.plan(space.candidate(runtime="inductor", mode="reduce-overhead"))
    assert "return owned(compiled(*args, **kwargs))" in snippet(graphs, device_type="cuda", is_module=True)
    reduced = space.plan(space.candidate(runtime="inductor", mode="reduce-overhead", amp="bf16"))
    assert "return restored(owned(compiled(*args, **kwargs)))" in snippet(reduced, device_type="cuda", is_module=True)
    plain = snippet(space.plan(space.plain_compile()), device_type="cuda", is_module=True)
    assert "owned" not in plain


def test_recurrent_layers_are_compiled_for_calls_and_stay_eager_in_a_training():
    """Dynamo would unroll a training step over time: minutes to compile, and at most slightly faster."""
    around = dataclasses.replace(CPU, has_recurrence=True)
    training = dataclasses.replace(around, training=TrainingEntry("AdamW"))
    inductor = catalogue.kind("inductor")
    assert inductor.settings(around) == {"recurrent": True}
    assert inductor.settings(training) == {}
    assert inductor.settings(CPU) == {}
