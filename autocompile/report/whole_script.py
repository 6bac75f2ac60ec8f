"""What a gain of its part comes to for the whole of a script that was watched."""

from __future__ import annotations

from autocompile.core.document import Document

# Below this share of its time, the rest of a script changes little.
_WORTH_TELLING = 0.1


def whole_script_words(document: Document) -> str:
    """A sentence to go behind the verdict, "" where there is none to say.

    By Amdahl's law (1967), with the share that the module took while the script was watched.
    """
    script, gain = document.workload.script, document.winner.speedup
    if script is None or gain is None or script.is_compiled or script.autocast or document.workload.generation:
        return ""
    rest = 1 - script.share
    if rest < _WORTH_TELLING:
        return ""
    whole = 1 / (rest + script.share / gain.value)
    return f" The rest of the script, {rest:.0%} of its time, stays as it is: all of it is some {whole:.2f}x as fast."
