"""What it takes to get the next batch: a loader's settings, and how fast each was seen to be."""

from __future__ import annotations

from autocompile.core.serde import Record

# Below this a difference between two settings is within what a second of measuring leaves open.
_WORTH_TELLING = 0.9


class LoaderSetting(Record, frozen=True):
    """`workers` processes (0: the caller itself loads), each `prefetch` batches ahead, into pinned memory or not."""

    workers: int
    prefetch: int
    pinned: bool

    def __str__(self) -> str:
        """As a DataLoader takes it; workers that persist start once, and not for each pass."""
        own = f"num_workers={self.workers}"
        ahead = f", prefetch_factor={self.prefetch}, persistent_workers=True" if self.workers else ""
        return f"{own}{ahead}{', pin_memory=True' * self.pinned}"


class LoaderTiming(Record, frozen=True):
    """Milliseconds from batch to batch when nothing else is done in between, over so many `batches`."""

    setting: LoaderSetting
    batch_ms: float
    batches: int

    def step_ms(self, latency_ms: float) -> float:
        """From step to step with a model that takes `latency_ms`: workers load meanwhile, the caller cannot."""
        return max(self.batch_ms, latency_ms) if self.setting.workers else self.batch_ms + latency_ms


class LoaderTrial(Record, frozen=True):
    """A setting, tried while the model trains in eager: what a step takes then, and how much of it is waiting.

    `start_ms`: what the first step of a pass waits, starting the workers included. Means over so many `steps`, of the
    quicker of several tries.
    """

    setting: LoaderSetting
    step_ms: float
    waiting_ms: float
    start_ms: float
    steps: int


class Loaders(Record, tag="loaders", frozen=True):
    """A DataLoader as the user has it (`own`), and set otherwise; null with the `problem` where that was not tried."""

    own: LoaderTrial | None = None
    tried: tuple[LoaderTrial, ...] = ()
    problem: str = ""
    phases_s: dict[str, float] = {}

    @property
    def better(self) -> LoaderTrial | None:
        """The first setting that is about as good as any tried, if it waits less and a step is clearly shorter."""
        if self.own is None:
            return None
        sooner = [trial for trial in self.tried if trial.waiting_ms < self.own.waiting_ms]
        least = min((trial.step_ms for trial in sooner), default=self.own.step_ms)
        if least > _WORTH_TELLING * self.own.step_ms:
            return None
        return next(trial for trial in sooner if _WORTH_TELLING * trial.step_ms <= least)


class LoaderFacts(Record, frozen=True):
    """By what a script's DataLoader is known again: the classes of its dataset, sampler and collating function.

    `samples` in the dataset, null where it does not tell; `batch` is the size of one, null where batches come as they
    are; its own `workers`.
    """

    dataset: str
    sampler: str
    collate: str
    samples: int | None
    batch: int | None
    workers: int


class InputPipeline(Record, frozen=True):
    """Where the samples came from, and how long a batch takes: `own` as the user has it, `tried` set otherwise.

    `source` is the class of what was iterated over. `stays`: why other processes cannot have it, to train on it with
    other settings; "" where they can. `loader`: by what it is known again in a script that was watched; `fixed`: why
    `autocompile run` leaves its settings as they are, "" where workers give the same batches.
    """

    source: str
    own: LoaderTiming
    tried: tuple[LoaderTiming, ...] = ()
    stays: str = "it is kept only where a model is trained"
    loader: LoaderFacts | None = None
    fixed: str = "it is looked at only in a script that is watched"

    def share(self, latency_ms: float) -> float:
        """Of a step with a model that takes `latency_ms`, the share that is spent waiting for the batch, in 0..1."""
        step = self.own.step_ms(latency_ms)
        return max(0.0, step - latency_ms) / step if step > 0 else 0.0

    def better(self, latency_ms: float) -> LoaderTiming | None:
        """The first setting that is about as good as any tried, if it is clearly better than the user's own."""
        steps = [timing.step_ms(latency_ms) for timing in self.tried]
        if not steps or min(steps) > _WORTH_TELLING * self.own.step_ms(latency_ms):
            return None
        return next(
            timing for timing, step in zip(self.tried, steps, strict=True) if _WORTH_TELLING * step <= min(steps)
        )
