"""The part of the snippet that generates text, with a compiled decode step or compiled prompts.

The code needs only torch and transformers.

Does not import torch.
"""

from __future__ import annotations

from autocompile.core.workload import GenerationEntry

_STEP = """
import inspect

from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache


class Held(CacheLayerMixin):
    \"\"\"A layer's keys and values in memory of fixed size. The entries that a step adds are stored in `added`.\"\"\"

    is_compileable, is_sliding = True, False

    def __init__(self, keys, values, length):
        super().__init__()
        self.keys, self.values, self.length, self.is_initialized = keys, values, length, True

    def lazy_initialization(self, *states):
        pass

    def update(self, key_states, value_states, *args, **kwargs):
        self.added = key_states, value_states
        here = (torch.arange(self.keys.shape[-2], device=self.keys.device) == self.length)[:, None]
        return torch.where(here, key_states, self.keys), torch.where(here, value_states, self.values)

    def get_mask_sizes(self, query_length):
        return self.keys.shape[-2], 0

    def get_seq_length(self):
        return self.length

    def get_max_length(self):
        return self.keys.shape[-2]

    get_max_cache_shape = get_max_length  # the method's name before transformers 5.21


class DecodeStep(torch.nn.Module):
    \"\"\"Takes one token of each text; returns the logits of the next token and the new cache entries.\"\"\"

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.takes = inspect.signature(model.forward).parameters

    def forward(self, tokens, positions, mask, length, caches):
        layers = [Held(keys, values, length) for keys, values in caches]
        given = {{CACHE: Cache(layers=layers), "use_cache": True, "return_dict": True{options}}}
        if "position_ids" in self.takes:
            given["position_ids"] = positions
        logits = self.model(input_ids=tokens, attention_mask=mask, **given).logits
        return logits, tuple(layer.added for layer in layers)


# `past_key_values` before transformers 5.24
CACHE = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
language_model, model = model, DecodeStep(model).eval()
"""
_PROMPT = """
import inspect

from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache


class First(CacheLayerMixin):
    \"\"\"An empty layer of the cache. The keys and values of the prompt are stored in it.\"\"\"

    is_compileable, is_sliding = False, False

    def lazy_initialization(self, *states):
        pass

    def update(self, key_states, value_states, *args, **kwargs):
        self.keys, self.values, self.is_initialized = key_states, value_states, True
        return key_states, value_states

    def get_mask_sizes(self, query_length):
        return query_length, 0

    def get_seq_length(self):
        return 0

    def get_max_length(self):
        return -1

    get_max_cache_shape = get_max_length  # the method's name before transformers 5.21


class Prompt(torch.nn.Module):
    \"\"\"Takes whole prompts; returns the logits of the next token and the keys and values of all layers.\"\"\"

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.takes = inspect.signature(model.forward).parameters

    def forward(self, tokens, positions):
        layers = [First() for _ in range({layers})]
        given = {{CACHE: Cache(layers=layers), "use_cache": True, "return_dict": True{options}}}
        if "position_ids" in self.takes:
            given["position_ids"] = positions
        logits = self.model(input_ids=tokens, **given).logits
        return logits, tuple((layer.keys, layer.values) for layer in layers)


# `past_key_values` before transformers 5.24
CACHE = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
language_model, model = model, Prompt(model).eval()
"""
_AFTER_PROMPT = """

def generate(ids, new_tokens):
    \"\"\"Generate greedily from prompts of equal length without padding, [batch, tokens].\"\"\"
    with torch.no_grad():
        logits, held = run(ids, torch.arange(ids.shape[1], device=ids.device).expand(ids.shape).contiguous())
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(held):
            cache.update(keys, values, layer)
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        for _ in range(new_tokens - 1):
            logits = language_model(input_ids=ids[:, -1:], use_cache=True, **{{CACHE: cache}}).logits
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids
"""
_LOOP = """

def generate(ids, new_tokens):
    \"\"\"Generate greedily from prompts of equal length, [batch, tokens]. A text has at most {capacity} tokens.\"\"\"
    if ids.shape[1] + new_tokens > {capacity}:
        raise ValueError("the cache has room for {capacity} tokens only; increase that number")
    with torch.no_grad():
        cache = DynamicCache()
        logits = language_model(input_ids=ids, use_cache=True, **{{CACHE: cache}}).logits
        room = {capacity} - ids.shape[1]
        padded = lambda held: torch.nn.functional.pad(held, (0, 0, 0, room))
        caches = tuple((padded(layer.keys), padded(layer.values)) for layer in cache.layers)
        mask = torch.ones(len(ids), {capacity}, dtype=torch.bool, device=ids.device)
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        for _ in range(new_tokens - 1):
            tokens, length = ids[:, -1:].contiguous(), ids.shape[1] - 1
            positions = tokens.new_full(tokens.shape, length)
            logits, added = run(tokens, positions, mask, tokens.new_full((), length), caches)
            for (keys, values), (key, value) in zip(caches, added):
                keys[:, :, length : length + 1], values[:, :, length : length + 1] = key, value
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids
"""


def step_lines(entry: GenerationEntry) -> list[str]:
    """Return the lines that replace `model` by the tuned part of it: a decode step, or the call for a prompt."""
    options = "".join(f', "{name}": {written}' for name, written in entry.options.items())
    code = _STEP if entry.part == "decode" else _PROMPT
    return code.format(options=options, layers=entry.layers).splitlines()


def loop_lines(entry: GenerationEntry) -> list[str]:
    """Return the lines that generate text with `run`, the tuned part."""
    return (_LOOP if entry.part == "decode" else _AFTER_PROMPT).format(capacity=entry.capacity).splitlines()
