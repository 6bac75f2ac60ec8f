"""Calls padded to buckets: only if padding provably changes nothing, and then with correct results for every size."""

import models
import pytest
import torch

from autocompile.core.buckets import bucket_sizes
from autocompile.core.outcome import Measurement
from autocompile.runtime.building import build
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.snippet import snippet
from autocompile.trial.check.padding_proof import prove_padding
from autocompile.workload.call import Call
from autocompile.workload.samples import as_samples

LENGTHS = (3, 7, 9, 12, 30)


def calls(lengths=LENGTHS, batch=2):
    torch.manual_seed(0)
    return [
        {"words": torch.randint(1, 50, (batch, n)), "attention_mask": torch.ones(batch, n, dtype=torch.long)}
        for n in lengths
    ]


def proof(model, inputs):
    return prove_padding(Call(model.eval()), as_samples(inputs))


def test_buckets_are_powers_of_two_and_the_largest_size_and_few():
    assert bucket_sizes([3, 8, 9, 40]) == (8, 16, 40)
    assert bucket_sizes([64]) == (64,)
    assert bucket_sizes([1 << n for n in range(3, 13)]) == (64, 128, 256, 512, 1024, 2048, 4096)


def test_a_model_that_heeds_its_mask_may_be_filled_up():
    found = proof(models.Masked(), calls())
    assert found.problem == ""
    assert found.buckets.sizes == (8, 16, 30)
    assert [(one.leaf, one.axis, one.fill) for one in found.buckets.padded] == [(0, 1, 0), (1, 1, 0)]
    assert [(one.leaf, one.axis) for one in found.buckets.cut] == [(0, 1)]


def inverted():
    """A mask that is True where nothing is, as of torch's own attention."""

    class Inverted(models.Masked):
        def forward(self, words, padding_mask):
            return super().forward(words, (~padding_mask).long())

    return Inverted(), [{"words": one["words"], "padding_mask": one["attention_mask"] == 0} for one in calls()]


def test_a_mask_may_say_it_the_other_way_round():
    found = proof(*inverted())
    assert [one.fill for one in found.buckets.padded] == [0, 1]


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (
            models.Masked(heeds=False),
            calls(),
            (
                "output['each'] of a call of size 3 filled up to 8 differs, "
                "with attention_mask filled with 0 and words with 0"
            ),
        ),
        (models.Stack(), [torch.randn(n, 32) for n in (3, 5, 9)], "given no mask"),
        (models.Masked(), [*calls((3, 9)), *calls((5,), batch=3)], "2 sizes vary independently"),
        (models.Masked(), calls((4, 4)), "no sizes vary"),
        (models.Masked(), [*calls((4, 5)), *[{"words": one["words"]} for one in calls((6,))]], "several forms"),
    ],
)
def test_what_may_not_be_filled_up_is_told(model, inputs, said):
    found = proof(model, inputs)
    assert found.buckets is None
    assert said in found.problem


def test_few_shapes_are_compiled_and_every_size_is_right(laboratory):
    profile = laboratory.prepare(models.Masked().eval(), calls())
    plan = compiled(dynamic=False, buckets=profile.buckets)
    found = laboratory.trial(plan)
    assert isinstance(found, Measurement), found
    assert found.counters.graphs == len(profile.buckets.sizes)
    assert (found.counters.unseen, found.counters.unseen_recompiles) == (1, 0)


def test_a_size_that_no_sample_has_is_probed(laboratory):
    laboratory.prepare(models.Masked().eval(), calls((3, 9)))
    static = laboratory.trial(compiled(dynamic=False))
    dynamic = laboratory.trial(compiled(dynamic=True))
    assert (static.counters.unseen, static.counters.unseen_recompiles) == (1, 1)
    assert (dynamic.counters.unseen, dynamic.counters.unseen_recompiles) == (1, 0)


def test_samples_of_several_forms_are_measured_all_the_same(laboratory):
    laboratory.prepare(models.Stack().eval(), [torch.randn(3, 32), torch.randn(2, 4, 32)])
    found = laboratory.trial(compiled())
    assert isinstance(found, Measurement), found
    assert found.counters.unseen == 0


def test_sizes_beyond_all_buckets_and_other_calls_are_made_as_they_are():
    model = models.Masked().eval()
    buckets = proof(model, calls()).buckets
    seen = []
    model.register_forward_pre_hook(
        lambda _model, _args, kwargs: seen.append(kwargs["words"].shape[-1]), with_kwargs=True
    )
    built = build(Call(model), compiled(buckets=buckets, backend="eager"))
    for call in calls((5, 8, 33)):
        assert built(**call)["each"].shape[1] == call["words"].shape[1]
    assert seen == [8, 8, 33]


def as_built(model, plan):
    return build(Call(model), plan)


def as_snippet(model, plan):
    scope = {"model": model}
    exec(snippet(plan, device_type="cpu", is_module=True), scope)
    return scope["run"]


@pytest.mark.parametrize("made", [as_built, as_snippet])
def test_calls_of_every_size_and_form_are_right(made):
    model = models.Masked().eval()
    run = made(model, compiled(buckets=proof(model, calls()).buckets, backend="eager"))
    other_way_round = [dict(reversed(call.items())) for call in calls((5,))]
    other_dtype = [{**call, "words": call["words"].int()} for call in calls((5,))]
    for call in [*calls((5, 9, 33)), *other_way_round, *other_dtype]:
        expected = model(**call)
        found = run(**call)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name])
    by_position = run(*calls((5,))[0].values())
    torch.testing.assert_close(by_position["each"], model(**calls((5,))[0])["each"])


def test_masks_by_position_are_known_by_the_models_own_names():
    inputs = [tuple(call.values()) for call in calls()]
    found = proof(models.Masked(), inputs)
    assert (found.problem, found.buckets.positional, found.buckets.keywords) == ("", 2, ())


def test_a_model_is_never_asked_for_more_than_the_largest_sample():
    model, longest = models.Masked(), []
    model.register_forward_pre_hook(
        lambda _model, _args, kwargs: longest.append(kwargs["words"].shape[-1]), with_kwargs=True
    )
    assert proof(model, calls()).problem == ""
    assert max(longest) == max(LENGTHS)
