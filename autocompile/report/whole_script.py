"""Estimates how much faster the whole of a watched script becomes, from the gain of the part that was tuned."""

from __future__ import annotations

from autocompile.core.document import Document

# If the rest of the script takes a smaller share of its time, the whole gains about as much as the part.
_WORTH_TELLING = 0.1


def whole_script_words(document: Document) -> str:
    """Return a sentence to follow the verdict, or "" if none is needed.

    It applies Amdahl's law (1967) to the share of time that the module took while the script was watched.
    """
    script, gain = document.workload.script, document.winner.speedup
    if script is None or gain is None or script.is_compiled or script.autocast or document.workload.generation:
        return ""
    rest = 1 - script.share
    if rest < _WORTH_TELLING:
        return ""
    whole = 1 / (rest + script.share / gain.value)
    return f" The rest of the script, {rest:.0%} of its time, is unchanged: the whole is about {whole:.2f}x as fast."
