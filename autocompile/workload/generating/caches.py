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
        """Append the keys and values of some tokens, each [batch, heads, tokens, width]."""
        for layer, (keys, values) in zip(self.layers, added, strict=True):
            layer.append(keys, values)

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
    """One layer of the cache: `keys` and `values` are views of the used part of its memory, made when they are read.

    Other code may replace them, as beam search does. The new tensors are then copied into new memory of the layer.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity, self._length = capacity, 0
        self._memory: Pair | None = None
        # The keys and the values that other code has put in their place, if any.
        self._replaced: list[torch.Tensor | None] = [None, None]
        super().__init__()

    @property
    def keys(self) -> torch.Tensor | None:
        """The keys of all tokens, [batch, heads, length, width]; None before the first token."""
        return self._used(0)

    @keys.setter
    def keys(self, given: torch.Tensor | None) -> None:
        self._replace(0, given)

    @property
    def values(self) -> torch.Tensor | None:
        """The values of all tokens, [batch, heads, length, width]; None before the first token."""
        return self._used(1)

    @values.setter
    def values(self, given: torch.Tensor | None) -> None:
        self._replace(1, given)

    @property
    def memory(self) -> Pair:
        """The keys and values including the unused memory, which contains zeros or old values."""
        held = self.get_seq_length()
        assert held, "nothing was held yet"
        self.make_room(held)
        assert self._memory is not None
        return self._memory

    def get_seq_length(self) -> int:
        """Return the number of tokens."""
        replaced = self._replaced[0]
        if replaced is None:
            return self._length
        return int(replaced.shape[-2]) if replaced.numel() else 0

    def lazy_initialization(self, key_states: torch.Tensor, _value_states: torch.Tensor | None = None) -> None:
        """Remember what the keys and values are like."""
        self.device, self.dtype, self.is_initialized = key_states.device, key_states.dtype, True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> Any:
        """Append keys and values, and return all of them."""
        self.append(key_states, value_states)
        return self.keys, self.values

    def append(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Append keys and values."""
        added = key_states.shape[-2]
        if not self.get_seq_length():
            self.lazy_initialization(key_states)
            self._length, self._replaced = 0, [None, None]
            self._memory = (_room(key_states, self._sized(added)), _room(value_states, self._sized(added)))
        else:
            self.make_room(self.get_seq_length() + added)
        assert self._memory is not None
        for memory, states in zip(self._memory, (key_states, value_states), strict=True):
            memory.narrow(2, self._length, added).copy_(states)
        self._length += added

    def make_room(self, length: int) -> None:
        """Make room for this many tokens. The keys and values are copied if the memory has to grow."""
        memory, (other_keys, other_values) = self._memory, self._replaced
        if memory is not None and other_keys is None and other_values is None and length <= memory[0].shape[2]:
            return
        keys, values, held = self.keys, self.values, self.get_seq_length()
        assert keys is not None
        assert values is not None
        self._memory = (_room(keys, self._sized(length)), _room(values, self._sized(length)))
        for room, states in zip(self._memory, (keys, values), strict=True):
            room.narrow(2, 0, held).copy_(states)
        self._length, self._replaced = held, [None, None]

    def _used(self, which: int) -> torch.Tensor | None:
        replaced = self._replaced[which]
        if replaced is not None or self._memory is None:
            return replaced
        return self._memory[which].narrow(2, 0, self._length)

    def _replace(self, which: int, given: torch.Tensor | None) -> None:
        if given is None:
            self._memory, self._length = None, 0
        self._replaced[which] = given

    def _sized(self, length: int) -> int:
        while self._capacity < length:
            self._capacity *= 2
        return self._capacity


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


class FirstLayer(CacheLayerMixin):  # type: ignore[misc]
    """An empty layer that a compiler can trace. It keeps what the call for a prompt adds: its `keys` and `values`."""

    is_compileable = False
    is_sliding = False

    def lazy_initialization(self, *_states: torch.Tensor) -> None:
        """Do nothing: there is nothing to prepare."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> Pair:
        """Keep the keys and values, and return them."""
        self.keys, self.values, self.is_initialized = key_states, value_states, True
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of the prompt, with offset 0."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Return 0: a prompt is the beginning of its text."""
        return 0

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def get_max_cache_shape(self) -> int:
        """Return -1. This was the method's name before transformers 5.21."""
        return -1


def grown(keys: torch.Tensor, values: torch.Tensor) -> DynamicLayer:
    """Return a layer of transformers' dynamic cache with these keys and values."""
    layer = DynamicLayer()
    layer.keys, layer.values, layer.is_initialized = keys, values, True
    layer.dtype, layer.device = keys.dtype, keys.device
    return layer
