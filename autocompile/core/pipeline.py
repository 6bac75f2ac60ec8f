"""The input pipeline: a DataLoader's settings, and the measured time per batch with each of them."""

from __future__ import annotations

from autocompile.core.serde import Record

# A setting must reduce the time to this share. A smaller difference is within the error of a second of measuring.
_WORTH_TELLING = 0.9


class LoaderSetting(Record, frozen=True):
    """The number of worker processes (0: the caller itself loads), batches prefetched per worker, pinned memory."""

    workers: int
    prefetch: int
    pinned: bool

    def __str__(self) -> str:
        """Return the setting as arguments of a DataLoader. Persistent workers start once, not once per pass."""
        own = f"num_workers={self.workers}"
        ahead = f", prefetch_factor={self.prefetch}, persistent_workers=True" if self.workers else ""
        return f"{own}{ahead}{', pin_memory=True' * self.pinned}"


class LoaderTiming(Record, frozen=True):
    """Milliseconds from batch to batch if nothing else is done in between, measured over `batches` batches."""

    setting: LoaderSetting
    batch_ms: float
    batches: int

    def step_ms(self, latency_ms: float) -> float:
        """Return the time per step with a model that takes `latency_ms`. Only workers load while the model computes."""
        return max(self.batch_ms, latency_ms) if self.setting.workers else self.batch_ms + latency_ms


class LoaderTrial(Record, frozen=True):
    """A setting, tried while the model trains in eager: the time per step, and how much of it is waiting for batches.

    `start_ms`: how long the first step of a pass waits, including the start of the workers. All values are means over
    `steps` steps, of the fastest of several tries.
    """

    setting: LoaderSetting
    step_ms: float
    waiting_ms: float
    start_ms: float
    steps: int


class Loaders(Record, tag="loaders", frozen=True):
    """The user's own setting of a DataLoader, and others that were tried; `problem`: why nothing was tried, or ""."""

    own: LoaderTrial | None = None
    tried: tuple[LoaderTrial, ...] = ()
    problem: str = ""
    phases_s: dict[str, float] = {}

    @property
    def better(self) -> LoaderTrial | None:
        """The first setting that is about as good as the best, if steps wait less and are clearly shorter; or None."""
        if self.own is None:
            return None
        sooner = [trial for trial in self.tried if trial.waiting_ms < self.own.waiting_ms]
        least = min((trial.step_ms for trial in sooner), default=self.own.step_ms)
        if least > _WORTH_TELLING * self.own.step_ms:
            return None
        return next(trial for trial in sooner if _WORTH_TELLING * trial.step_ms <= least)


class LoaderFacts(Record, frozen=True):
    """Facts by which a script's DataLoader is recognized: the classes of its dataset, sampler and collate function.

    `samples`: the length of the dataset, null if it has none. `batch`: the batch size, null if the dataset itself
    provides batches. `workers`: its own number of workers.
    """

    dataset: str
    sampler: str
    collate: str
    samples: int | None
    batch: int | None
    workers: int


class InputPipeline(Record, frozen=True):
    """Where the samples came from, and how long a batch takes with the user's `own` setting and others (`tried`).

    `source`: the class of the object that was iterated over. `stays`: why it cannot be sent to another process to train
    with other settings, or "". `loader`: the facts by which `autocompile run` recognizes it in a script. `fixed`: why
    `autocompile run` must not change its settings; "" if the batches are the same with workers.
    """

    source: str
    own: LoaderTiming
    tried: tuple[LoaderTiming, ...] = ()
    stays: str = "it is kept only where a model is trained"
    loader: LoaderFacts | None = None
    fixed: str = "it is examined only in a script that is watched"

    def share(self, latency_ms: float) -> float:
        """Return the share of a step, in 0..1, that waits for the batch, with a model that takes `latency_ms`."""
        step = self.own.step_ms(latency_ms)
        return max(0.0, step - latency_ms) / step if step > 0 else 0.0

    def better(self, latency_ms: float) -> LoaderTiming | None:
        """Return the first setting that is about as good as the best, if it is clearly better than the user's own."""
        steps = [timing.step_ms(latency_ms) for timing in self.tried]
        if not steps or min(steps) > _WORTH_TELLING * self.own.step_ms(latency_ms):
            return None
        return next(
            timing for timing, step in zip(self.tried, steps, strict=True) if _WORTH_TELLING * step <= min(steps)
        )
