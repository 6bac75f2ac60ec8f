"""Check whether a model's weights are those that a program has a copy of.

The weights are read once when they are packed and once when they are loaded, where a sample of each may be enough.
While the program serves, a check of a fraction of a microsecond per tensor looks for possible changes since then. Only
if there may be one are the weights read again.

The check detects another tensor in a module, a tensor with other memory (`tensor.data = ...`), dtype or layout, and
changes in place by an optimizer, by `load_state_dict` or by any operation with a trailing underscore. Torch does not
count the steps of its fused optimizers as writes; a hook reports them instead. Writes to a tensor's memory that bypass
torch (in place through `tensor.data`, through a NumPy view, or in inference mode into tensors that were made in it) are
detected on a CPU if they change all or most of a tensor (`witnesses.py`). The check does not detect such writes to a
few elements or on another device. Programs with a copy of another tensor (in a list, or of a library's code) are not
packed (`strangers.py`).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from autocompile.core.identity import Identity
from autocompile.parallel import do_all
from autocompile.runtime.base import Loaded, WeightsDiffer
from autocompile.runtime.digest import digest_of
from autocompile.runtime.held_tensors import HeldTensors
from autocompile.runtime.model_watch import State, Watch
from autocompile.runtime.unwritten import Unwritten

# Larger tensors are read in pieces of this size, each with its own digest, so that threads can share the work.
_PIECE_BYTES = 1 << 20
_DIGEST_DIGITS = 32
# A sample of a tensor: this number of pieces, of this number of bytes each, evenly spaced and including both ends.
_SAMPLES, _SAMPLE_BYTES = 16, 256
# Stands for the digest of a tensor whose bytes cannot be read. It counts as different from every digest.
UNREADABLE = ""


def digests(named: Mapping[str, torch.Tensor], *, sampled: bool = False) -> dict[str, str]:
    """Describe the contents of each tensor, by name: dtype, shape, and a digest of its bytes.

    With `sampled`, the digest is of 16 evenly spaced pieces of 256 bytes of each tensor.
    """
    readings = {id(tensor): _Reading(tensor, sampled) for tensor in named.values()}
    parts = [part for reading in readings.values() for part in reading.parts()]
    # The largest parts come first, so that all threads end at about the same time.
    do_all([read for _size, read in sorted(parts, key=lambda part: part[0], reverse=True)])
    return {path: readings[id(tensor)].digest() for path, tensor in named.items()}


def difference(packed: Mapping[str, str], present: Mapping[str, str], were: str = "packed") -> str:
    """Return how the weights differ from those that were `packed`, or what else they `were`, as text, or ""."""
    differ = [p for p in packed if p in present and (packed[p] != present[p] or packed[p] == UNREADABLE)]
    words = [
        *(f"{path} differs" for path in differ),
        *(f"there is no {path}" for path in packed if path not in present),
        *(f"there was no {path}" for path in present if path not in packed),
    ]
    if not words:
        return ""
    more = f", and {len(words) - 1} more" if len(words) > 1 else ""
    return f"the weights are not those that were {were}: {words[0]}{more}"


class _FusedSteps:
    """Records steps of fused optimizers, whose kernels write without an increase of torch's version counters."""

    def __init__(self) -> None:
        self.latest = object()
        self._listens = False

    def listen(self) -> None:
        """Start to record. `latest` is a new object after each step."""
        if not self._listens:
            self._listens = True
            register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Optimizer, _args: Any, _keywords: Any) -> None:
        if any(group.get("fused") for group in optimizer.param_groups):
            self.latest = object()


_FUSED_STEPS = _FusedSteps()


class Weights:
    """A model's weights, compared with `packed` once and after each detected change.

    Without `packed`, they are compared with their values at the first question.

    `begin` starts the first comparison with `packed` in a thread, so that programs can be loaded in the meantime.

    `watch` is the model's `Watch`; the caller updates it before each question. `samples` are digests of samples of the
    packed weights, for the first comparison. After a change, all weights are read. `identity` is the model's as it was
    packed. With `only_images`, parameters and buffers of other than four dimensions do not count.
    """

    def __init__(
        self,
        model: Any,
        packed: Mapping[str, str] | None,
        watch: Watch,
        samples: Mapping[str, str] | None = None,
        identity: Identity | None = None,
        *,
        only_images: bool = False,
    ) -> None:
        _FUSED_STEPS.listen()
        self.watch = watch
        self._tensors = HeldTensors(model, packed=packed or (), identity=identity, only_images=only_images)
        self._packed = packed
        self._were = "there when it was built" if packed is None else "packed"
        self._samples = samples
        self._reading = threading.Lock()
        self._look: _Look | None = None

    def begin(self) -> threading.Thread:
        """Start to compare the weights in a thread, and return it. `difference` waits for the comparison."""
        thread = threading.Thread(target=self._compare, name="autocompile-weights")
        thread.start()
        return thread

    def difference(self) -> str:
        """Return how the weights now differ from those that were packed, or ""."""
        look = self._look
        if look is None or not look.holds(self.watch.state):
            with self._reading:
                if self._look is None or not self._look.holds(self.watch.state):
                    self._look = self._looked()
                look = self._look
        return look.difference

    def holding(self, run: Loaded) -> Loaded:
        """Wrap a program that has its own copy of these weights.

        It raises WeightsDiffer if the model's weights are different.
        """

        def held(tensors: list[torch.Tensor]) -> Any:
            differs = self.difference()
            if differs:
                raise WeightsDiffer(differs)
            return run(tensors)

        return held

    def _compare(self) -> None:
        with suppress(Exception):  # `difference` raises it again
            self.difference()

    def _looked(self) -> _Look:
        if self._packed is None:
            self._packed = digests(self._tensors.named())
        if self._samples is None:
            return _Look(self._tensors, self._packed, self.watch.state, self._were)
        look = _Look(self._tensors, self._samples, self.watch.state, self._were, sampled=True)
        self._samples = None
        return look


class _Look:
    """The weights' addresses and numbers of writes, recorded before the weights were read."""

    def __init__(
        self, tensors: HeldTensors, packed: Mapping[str, str], state: State, were: str, *, sampled: bool = False
    ) -> None:
        self._tensors, self._state = tensors, state
        self._step = _FUSED_STEPS.latest
        named = tensors.named()
        self._held, self._variables = _identities(named.items()), _identities(tensors.variables())
        self._unwritten = Unwritten(list(named.values()))
        self.difference = difference(packed, digests(named, sampled=sampled), were)

    def holds(self, state: State) -> bool:
        """Return whether no write has been detected since."""
        if self._variables and _identities(self._tensors.variables()) != self._variables:
            return False
        if state is not self._state:
            if _identities(self._tensors.named().items()) != self._held:
                return False
            self._state = state
        return self._step is _FUSED_STEPS.latest and self._unwritten.hold()


def _identities(named: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, int]]:
    return [(path, id(tensor)) for path, tensor in named]


# A part of the work: the number of bytes to read, and the function that reads them.
_Part = tuple[int, Callable[[], None]]


class _Reading:
    """The bytes of one tensor, in the order of its elements, and the digests of those that were read."""

    def __init__(self, tensor: torch.Tensor, sampled: bool) -> None:
        self._tensor = tensor
        self._sampled = sampled
        self._digests: dict[int, bytes] = {}
        self._is_readable = True

    def parts(self) -> Iterator[_Part]:
        """Yield the parts to read.

        A tensor that must be copied first is one part, so that few copies exist at a time.
        """
        tensor = self._tensor
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
            yield tensor.numel() * tensor.element_size(), self._read_copy
            return
        whole = self._bytes()
        if whole is not None:
            for start, piece in self._pieces(whole):
                yield len(piece), partial(self._read, start, piece)

    def digest(self) -> str:
        """Return dtype, shape and digest, after all parts were read."""
        if not self._is_readable:
            return UNREADABLE
        pieces = [self._digests[start] for start in sorted(self._digests)]
        read = pieces[0] if len(pieces) == 1 else hashlib.sha256(b"".join(pieces)).digest()
        shape = "x".join(map(str, self._tensor.shape))
        return f"{str(self._tensor.dtype).removeprefix('torch.')} {shape} {read.hex()[:_DIGEST_DIGITS]}"

    def _read(self, start: int, piece: memoryview) -> None:
        self._digests[start] = digest_of(piece)

    def _read_copy(self) -> None:
        whole = self._bytes()
        if whole is not None:
            for start, piece in self._pieces(whole):
                self._read(start, piece)

    def _pieces(self, whole: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield the pieces of these bytes to read, each with its start."""
        if self._sampled:
            last = max(len(whole) - _SAMPLE_BYTES, 0)
            starts = sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)})
            yield 0, memoryview(b"".join(whole[start : start + _SAMPLE_BYTES] for start in starts))
            return
        for start in range(0, max(len(whole), 1), _PIECE_BYTES):
            yield start, whole[start : start + _PIECE_BYTES]

    def _bytes(self) -> memoryview | None:
        """Return the tensor's bytes, or None if they cannot be read."""
        tensor = self._tensor.detach()
        try:
            with torch.no_grad():
                plain = tensor if tensor.layout is torch.strided else tensor.to_dense()
                dense = plain.resolve_conj().resolve_neg().cpu().contiguous()
                return dense.reshape(-1).view(torch.uint8).numpy().data
        except (RuntimeError, NotImplementedError, TypeError):
            self._is_readable = False
            return None
