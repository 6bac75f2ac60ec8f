"""Planted faults are caught, and correct candidates pass."""

import models
import pytest
import torch

from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Acceptance
from autocompile.core.plan import Plan
from autocompile.core.tolerance import exactly, published_tolerance
from autocompile.runtime.building import build
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import Reference, make_reference, vary
from autocompile.workload.call import Call
from autocompile.workload.metric import spool_metric, unspool_metric
from autocompile.workload.samples import Sample, as_samples

FP32 = Acceptance(published_tolerance(""))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return models.Stack().eval()


@pytest.fixture(scope="module")
def reference(model):
    torch.manual_seed(1)
    return make_reference(Call(model), as_samples(torch.randn(64, 32)), variants=2, seed=0)


def fault_of(call, reference, acceptance=FP32):
    step = call if isinstance(call, Call) else Call(call)
    return compare(step, reference, acceptance).fault


def planted(model, change):
    def call(x):
        return change(model(x).clone())

    return call


def one_element(y):
    worst = y.abs().argmax()
    y.view(-1)[worst] *= 1.01
    return y


def one_lane(y):
    y[5, 2] = float("nan")
    return y


FAULTS = {
    "one element off by 1e-2": one_element,
    "swapped rows": lambda y: torch.cat([y[1:2], y[0:1], y[2:]]),
    "NaN in one lane": one_lane,
    "infinity": lambda y: y.index_fill(0, torch.tensor([3]), float("inf")),
    "wrong dtype": lambda y: y.double(),
    "wrong shape": lambda y: y[:-1],
    "wrong structure": lambda y: (y,),
    "all zeros": torch.zeros_like,
    "scaled by 1.001": lambda y: y * 1.001,
}


@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS.keys())
def test_planted_faults_are_caught(model, reference, change):
    assert fault_of(planted(model, change), reference)


def test_a_stale_output_is_caught(model, reference):
    before = [torch.zeros(64, 4)]

    def stale(x):
        before.append(model(x))
        return before[-2]

    assert fault_of(stale, reference)


def test_a_mutated_input_is_caught(model, reference):
    def mutating(x):
        y = model(x)
        x.mul_(2)
        return y

    assert "input" in fault_of(mutating, reference)


def test_a_mutated_buffer_is_caught():
    counting = models.Counting()
    reference = make_reference(Call(counting), as_samples(torch.ones(4)), variants=0, seed=0)

    class Twice(models.Counting):
        def forward(self, x):
            self.calls += 2
            return x * 2

    assert "buffer calls" in fault_of(Twice(), reference)
    assert fault_of(models.Counting(), reference) == ""


def test_honest_candidates_pass(model, reference):
    assert fault_of(model, reference) == ""
    for autocast in ("bfloat16", "float16"):
        amp = build(Call(model), Plan(autocast=autocast))
        found = compare(amp, reference, Acceptance(published_tolerance(autocast)))
        assert found.fault == ""
        assert found.accuracy.error > found.accuracy.baseline_error
        assert fault_of(amp, reference), "reduced precision must not pass as full"


def test_the_reference_is_float64_and_the_figure_is_kept(model, reference):
    assert reference.precision == "float64"
    assert reference.cases[0].expected.leaves["output"].dtype == torch.float64
    accuracy = compare(Call(model), reference, FP32).accuracy
    assert 0 < accuracy.error == accuracy.baseline_error < accuracy.limit
    assert accuracy.reference == "float64"


def test_where_float64_does_not_run_it_is_said_and_the_baseline_is_the_reference():
    def only_float32(x):
        assert x.dtype == torch.float32
        return x.sin()

    reference = make_reference(Call(only_float32), as_samples(torch.randn(100)), variants=1, seed=0)
    assert reference.precision == "the baseline's own"
    assert "no float64 reference: AssertionError" in reference.notes[0]
    assert fault_of(only_float32, reference) == ""
    assert fault_of(lambda x: x.sin() * 1.001, reference)


def test_random_variants_that_the_model_rejects_are_left_out():
    def picky(x):
        if (x[1:] < x[:-1]).any():
            raise ValueError("not sorted")
        return x + 1

    reference = make_reference(Call(picky), as_samples(torch.arange(50)), variants=3, seed=0)
    assert len(reference.cases) == 1
    assert "rejects a random variant" in reference.notes[0]


def test_integer_outputs_are_compared_exactly_and_odd_leaves_too():
    def call(x):
        return {"top": x.argmax(), "name": "a", "none": None, "mask": x > 0}

    reference = make_reference(Call(call), as_samples(torch.randn(10)), variants=1, seed=0)
    assert fault_of(call, reference) == ""
    assert "'name'" in fault_of(lambda x: {**call(x), "name": "b"}, reference)
    assert "'mask'" in fault_of(lambda x: {**call(x), "mask": x < 0}, reference)


def test_nan_that_the_baseline_has_too_is_no_fault():
    def call(x):
        return torch.where(x > 0, x, torch.full_like(x, float("nan")))

    reference = make_reference(Call(call), as_samples(torch.linspace(-1, 1, 20)), variants=0, seed=0)
    assert fault_of(call, reference) == ""
    assert fault_of(lambda x: torch.nan_to_num(call(x)), reference)


def test_randomness_is_compared_from_one_state():
    dropout = torch.nn.Dropout(0.5)
    reference = make_reference(Call(dropout), as_samples(torch.randn(100)), variants=0, seed=3)
    assert fault_of(dropout, reference) == ""


def test_a_reference_is_kept_on_disk(tmp_path, model, reference):
    reference.save(tmp_path / "reference.pt", with_outputs=False)
    assert fault_of(model, Reference.load(tmp_path / "reference.pt")) == ""


def test_variants_keep_shape_dtype_and_layout():
    sample = Sample((torch.randn(3, 4).t(), torch.arange(6)), {"mask": torch.tensor([True, False]), "scale": 2})
    varied = vary(sample, torch.Generator().manual_seed(0))
    assert varied.args[0].stride() == sample.args[0].stride()
    assert sorted(varied.args[1].tolist()) == list(range(6))
    assert not torch.equal(varied.args[0], sample.args[0])
    assert torch.equal(varied.kwargs["mask"], sample.kwargs["mask"])
    assert varied.kwargs["scale"] == 2


def test_a_users_metric_takes_the_place_of_the_tolerance_but_not_of_structure(model, reference):
    def agreement(output):
        return float((output.argmax(-1) == 0).double().mean())

    accept = Acceptance(published_tolerance(""), metric="somewhere", max_drop=0.2)
    rough = planted(model, lambda y: y * 1.01)
    assert fault_of(rough, reference)
    assert compare(Call(rough), reference, accept, agreement).fault == ""
    assert (
        "metric drops by"
        in compare(Call(planted(model, lambda y: y * -1)), reference, accept, lambda y: float(y.sum())).fault
    )
    assert "structure" in compare(Call(planted(model, lambda y: (y,))), reference, accept, agreement).fault
    assert "NaN" in compare(Call(planted(model, one_lane)), reference, accept, agreement).fault


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (lambda _output: "good", "metric: returned 'good', which is not a finite number"),
        (lambda _output: float("nan"), "metric: returned nan"),
        (lambda output: output["missing"], "metric: raised"),
    ],
)
def test_a_metric_with_a_fault_is_named(tmp_path, metric, said):
    path = tmp_path / "metric.pkl"
    spool_metric(metric, path)
    with pytest.raises(InvalidWorkload, match=said):
        unspool_metric(str(path))(torch.ones(3))


def test_a_metric_that_cannot_travel_is_named(tmp_path):
    import _thread

    lock = _thread.RLock()
    with pytest.raises(InvalidWorkload, match="metric: cannot be sent to another process"):
        spool_metric(lambda _output: lock and 1.0, tmp_path / "metric.pkl")


def test_a_users_own_tolerance_is_kept(model, reference):
    loose = Acceptance(exactly(0.05))
    assert fault_of(planted(model, lambda y: y * 1.01), reference, loose) == ""
    assert fault_of(planted(model, lambda y: y * 1.06), reference, loose)
