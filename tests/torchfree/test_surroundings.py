"""What may be compiled and for which sizes, derived from a profile and the signatures."""

from autocompile.core.plan import AxisRange
from autocompile.core.profile import GraphBreak, Submodule
from autocompile.core.workload import Signature, TensorSpec
from autocompile.space.surroundings import breaking_parts, hottest_parts, varying_axes


def part(path, whole):
    return Submodule(path, "Part", 1, 1.0, 0.0, whole, 0, 0)


def called_with(*shapes, constants=()):
    tensors = tuple(TensorSpec(f"[0][{i}]", "float32", shape, (), "cpu") for i, shape in enumerate(shapes))
    return Signature(tensors, dict(constants), 0.5)


def test_the_hottest_parts_are_those_of_the_first_level_with_a_choice():
    whole = [part("", 1.0), part("encoder", 0.97), part("head", 0.03)]
    layers = [part("encoder.layers.0", 0.3), part("encoder.layers.1", 0.6), part("encoder.norm", 0.02)]
    inner = [part("encoder.layers.1.linear", 0.6)]
    assert hottest_parts([*whole, *layers, *inner]) == ("encoder.layers.1", "encoder.layers.0")


def test_a_model_without_parts_has_none():
    assert hottest_parts([part("", 1.0)]) == ()
    assert hottest_parts([]) == ()


def test_axes_that_differ_vary_beyond_what_was_seen():
    seen = [called_with((4, 10), (4,)), called_with((4, 30), (4,))]
    assert varying_axes(seen) == (AxisRange(0, 1, 2, 128),)
    assert varying_axes(seen[:1]) == ()


def test_calls_of_several_forms_or_with_other_arguments_have_no_common_axes():
    assert varying_axes([called_with((4, 10)), called_with((4, 30), (4,))]) == ()
    named = [called_with((4, size), constants=[("kwargs['deep']", "True")]) for size in (10, 30)]
    assert varying_axes(named) == ()


def test_breaks_are_left_eager_only_where_a_submodule_holds_them_all():
    inside = GraphBreak("net.py", 3, "a print", path="sampler")
    outside = GraphBreak("net.py", 9, "a print")
    assert breaking_parts([inside, inside]) == ("sampler",)
    assert breaking_parts([inside, outside]) == ()
    assert breaking_parts([]) == ()
