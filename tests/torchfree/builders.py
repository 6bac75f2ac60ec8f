"""Builders of records with sensible fields, for tests that need only one or two of the fields."""

from autocompile.core.candidate import Candidate
from autocompile.core.environment import Environment
from autocompile.core.estimate import Estimate
from autocompile.core.outcome import Accuracy, Contamination, Counters, Failure, Latency, Measurement, Startup
from autocompile.core.profile import Profile
from autocompile.core.trial import Trial
from autocompile.core.workload import Signature, TensorSpec, Workload
from autocompile.runtime.inductor.settings import compiled


def measurement(ratio=0.5, *, halfwidth=0.01, startup_s=10.0, baseline_ms=10.0):
    return Measurement(
        ratio=Estimate.around(ratio, halfwidth),
        latency=latency(baseline_ms * ratio),
        baseline=latency(baseline_ms),
        startup=Startup(0.0, 0.0, startup_s, 0.0),
        accuracy=Accuracy(1e-7, 1e-7, 1e-5, 0.01, "output", "float64"),
        counters=Counters(),
        contamination=Contamination(100, 0, 0.0, 0.0, 0, noisy=False),
        peak_memory_bytes=1 << 20,
        phases_s={"load": 0.5, "compile": startup_s, "verify": 0.5, "timing": 2.0},
    )


def latency(p50_ms):
    return Latency(p50_ms, p50_ms, p50_ms, p50_ms, p50_ms, 100)


def failure(kind="error", stage="compile", message="it broke"):
    return Failure(stage, kind, message, phases_s={"compile": 1.0})


def trial(number=0, ratio=0.5, *, label="candidate", changes=1, origin="search", finals=(), outcome=None, **figures):
    return Trial(
        number=number,
        label=label,
        candidate=Candidate({"runtime": "inductor"}),
        plan=compiled(options={"n": number}),
        origin=origin,
        outcome=outcome or measurement(ratio, **figures),
        changes=changes,
        finals=tuple(finals),
    )


def baseline(**figures):
    figures = {"ratio": 1.0, "startup_s": 0.0, **figures}
    return trial(99, label="eager", changes=0, origin="baseline", **figures)


def profile(**fields):
    given = {
        "baseline_ms": Estimate(10.0, 9.0, 11.0),
        "self_ratio": Estimate(1.0, 0.99, 1.01),
        "busy_share": 0.9,
        "busy_source": "process CPU time",
        "outside_kernels_share": 0.2,
        "kernels_per_call": 40,
        "median_kernel_us": 12.0,
        "matrix_kernels": 4,
        "peak_memory_bytes": 1 << 28,
        "graph_count": 1,
        "graph_breaks": (),
        "trace_failure": "",
        "blocks": (),
        "deterministic": True,
        "random": False,
        "error_floor": 1e-7,
        "reference": "float64",
        "variants": 3,
        "phases_s": {"timing": 2.0, "profile": 1.0},
    }
    return Profile(**{**given, **fields})


def workload(**fields):
    given = {
        "name": "net",
        "kind": "inference",
        "device": "cpu",
        "directory": "nowhere",
        "signatures": (Signature((TensorSpec("[0]", "float32", (2, 3), (3, 1), "cpu"),), {}, 1.0),),
        "fingerprint": "f" * 64,
        "model_fingerprint": "e" * 64,
        "is_module": True,
        "in_training_mode": False,
        "parameter_count": 10,
        "parameter_bytes": 40,
        "has_conv": False,
    }
    return Workload(**{**given, **fields})


def environment(**fields):
    given = {
        "cpu": "a processor",
        "architecture": "x86_64",
        "cpu_features": ("avx2",),
        "cores": 4,
        "memory_bytes": 1 << 34,
        "gpus": (),
        "driver": "",
        "system": "Linux 6",
        "python": "3.11.7",
        "torch": "2.13.0",
        "autocompile": "0.1.0",
        "compiler": "g++ 12",
    }
    return Environment(**{**given, **fields})
