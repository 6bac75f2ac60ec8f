"""Caches of keys and values for transformers: one with preallocated memory, and one that can be traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

# The keys and the values of a layer, each [batch, heads, length, width].
Pair = tuple[torch.Tensor, torch.Tensor]


class PreallocatedCache(DynamicCache):  # type: ignore[misc]  # transformers is not typed here
    """A dynamic cache with preallocated memory for `capacity` tokens, which doubles when it is full."""

    def __init__(self, layers: int, capacity: int) -> None:
        Cache.__init__(self, layers=[PreallocatedLayer(capacity) for _ in range(layers)])
        self._mask: torch.Tensor | None = None

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return int(self.get_seq_length())

    @property
    def memory(self) -> tuple[Pair, ...]:
        """The keys and values of all layers, including the unused memory."""
        return tuple(layer.memory for layer in self.layers)

    def append(self, added: Sequence[Pair]) -> None:
        """Append the keys and values of one token, each [batch, heads, 1, width]."""
        for layer, (keys, values) in zip(self.layers, added, strict=True):
            layer.update(keys, values)

    def mask_of(self, given: torch.Tensor | None) -> torch.Tensor:
        """Return which of its tokens are attended to, bool, [batch, capacity]: the mask given to `generate`, then ones.

        It is made once per text, because all tokens after the prompt are attended to.
        """
        room = self.memory[0][0]
        shape = (room.shape[0], room.shape[-2])
        if self._mask is None or self._mask.shape != shape:
            self._mask = torch.ones(shape, dtype=torch.bool, device=room.device)
            if given is not None:
                self._mask[:, : given.shape[1]] = given.bool()
        return self._mask

    def make_room(self) -> None:
        """Make room for one more token."""
        for layer in self.layers:
            layer.make_room(layer.get_seq_length() + 1)

    def reset(self) -> None:
        """Discard the tokens, for another text."""
        super().reset()
        self._mask = None


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """One layer of the cache: `keys` and `values` are the used part of its memory.

    Other code may replace them, as beam search does. The new tensors are then copied into new memory of the layer.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._memory: Pair | None = None

    @property
    def memory(self) -> Pair:
        """The keys and values including the unused memory, which contains zeros or old values."""
        held = self.get_seq_length()
        assert held, "nothing was held yet"
        if self._memory is None or not self._is_within(self._memory):
            self._move_into(_room(self.keys, self._sized(held)), _room(self.values, self._sized(held)), held)
        assert self._memory is not None
        return self._memory

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> Pair:
        """Append keys and values, and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        held = self.get_seq_length()
        length = held + key_states.shape[-2]
        if held:
            self.make_room(length)
        else:
            self._memory = (_room(key_states, self._sized(length)), _room(value_states, self._sized(length)))
        assert self._memory is not None
        keys, values = self._memory
        keys[:, :, held:length] = key_states
        values[:, :, held:length] = value_states
        self.keys, self.values = keys[:, :, :length], values[:, :, :length]
        return self.keys, self.values

    def make_room(self, length: int) -> None:
        """Make room for this many tokens. The keys and values are copied if the memory has to grow."""
        keys, values = self.memory
        if length > keys.shape[-2]:
            self._move_into(_room(keys, self._sized(length)), _room(values, self._sized(length)), self.get_seq_length())

    def _is_within(self, memory: Pair) -> bool:
        mine: torch.Tensor = self.keys
        return mine.data_ptr() == memory[0].data_ptr() and mine.shape[0] == memory[0].shape[0]

    def _sized(self, length: int) -> int:
        while self._capacity < length:
            self._capacity *= 2
        return self._capacity

    def _move_into(self, keys: torch.Tensor, values: torch.Tensor, held: int) -> None:
        keys[:, :, :held] = self.keys
        values[:, :, :held] = self.values
        self._memory = (keys, values)
        self.keys, self.values = keys[:, :, :held], values[:, :, :held]


def _room(like: torch.Tensor, capacity: int) -> torch.Tensor:
    batch, heads, _length, width = like.shape
    return like.new_zeros(batch, heads, capacity, width)


class TracedLayer(CacheLayerMixin):  # type: ignore[misc]
    """A layer of fixed size that a compiler can trace. It writes nothing and keeps what was `added`.

    `length`, a tensor, is the number of tokens in `keys` and `values`.
    """

    is_compileable = True
    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, length: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True
        self._length = length
        self.added: Pair | None = None

    def lazy_initialization(self, *_states: torch.Tensor) -> None:
        """Do nothing: the layer is already initialized."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> Pair:
        """Return all keys and values, with one more token at `length`."""
        assert key_states.shape[-2] == 1, "a decode step is of one token"
        self.added = (key_states, value_states)
        here = (torch.arange(self.keys.shape[-2], device=self.keys.device) == self._length)[:, None]
        return torch.where(here, key_states, self.keys), torch.where(here, value_states, self.values)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the whole capacity, with offset 0."""
        return self.keys.shape[-2], 0

    def get_seq_length(self) -> torch.Tensor:
        """Return the number of tokens, a tensor."""
        return self._length

    def get_max_length(self) -> int:
        """Return the capacity."""
        return int(self.keys.shape[-2])

    def get_max_cache_shape(self) -> int:
        """Return the capacity. This was the method's name before transformers 5.21."""
        return self.get_max_length()


def grown(keys: torch.Tensor, values: torch.Tensor) -> DynamicLayer:
    """Return a layer of transformers' dynamic cache with these keys and values."""
    layer = DynamicLayer()
    layer.keys, layer.values, layer.is_initialized = keys, values, True
    layer.dtype, layer.device = keys.dtype, keys.device
    return layer
