"""Parsing and formatting of durations, counts and sizes."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from autocompile.core.errors import InvalidValue

_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?")
_SECONDS = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(µs|us|ms|min|s|m|h|d)")


def parse_duration(text: str | float | timedelta, *, where: str = "duration") -> float:
    """Return the seconds in `"90s"`, `"30m"`, `"1h30m"`, a number of seconds, or a `timedelta`.

    Raises InvalidValue if the value cannot be read, or is not finite and positive.
    """
    seconds = _seconds_of(text)
    if seconds is None:
        raise InvalidValue(f"cannot read {text!r} as a duration", where=where, remedy="write it like 90s, 30m or 1h30m")
    if not math.isfinite(seconds) or seconds <= 0:
        raise InvalidValue(
            f"{text!r} is not a positive duration", where=where, remedy="write it like 90s, 30m or 1h30m"
        )
    return seconds


def parse_limit(text: str | float | timedelta, *, where: str) -> float:
    """Return the seconds in a limit, which must have a unit: `"50ms"`, `"10s"`, or a `timedelta`.

    Raises InvalidValue like `parse_duration`, and for a bare number, which could mean milliseconds or seconds.
    """
    seconds = parse_duration(text, where=where)
    if isinstance(text, int | float) or (isinstance(text, str) and _NUMBER.fullmatch(text.strip())):
        number = str(text).strip()
        remedy = f'write "{number}ms" or "{number}s", or give a timedelta'
        raise InvalidValue(f"{number} has no unit", where=where, remedy=remedy)
    return seconds


def parse_size(text: str | int, *, where: str = "size") -> int:
    """Return the bytes in `"512MiB"`, `"8GB"`, or a number of bytes. Raises InvalidValue if it cannot be read."""
    found = _SIZE.fullmatch(str(text).strip().lower()) if isinstance(text, str | int) else None
    unit = _BYTES.get(found.group(2) or "b") if found and not isinstance(text, bool) else None
    if found is None or unit is None or float(found.group(1)) <= 0:
        raise InvalidValue(f"cannot read {text!r} as a size", where=where, remedy="write it like 512MiB or 8GB")
    return int(float(found.group(1)) * unit)


def _seconds_of(text: object) -> float | None:
    if isinstance(text, timedelta):
        return text.total_seconds()
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    return _seconds_in(text.strip().lower()) if isinstance(text, str) else None


def _seconds_in(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Format a duration: `740 µs`, `12.3 ms`, `4.2 s`, `1m 32s`, `1h 05m`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 60:
        return _format_seconds(seconds)
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"


def _format_seconds(seconds: float) -> str:
    if 0 < seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if 0 < seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 9.995 else f"{seconds:.1f} s"


def format_ms(milliseconds: float) -> str:
    """Format a latency, given in milliseconds."""
    return format_duration(milliseconds / 1e3)


def format_bytes(count: float) -> str:
    """Format a size, in powers of 1024: `86.7 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def format_count(count: float) -> str:
    """Format a number of calls: `210`, `2,600`, `1.3e+07`."""
    return f"{count:,.0f}" if count < 1e7 else f"{count:.2g}"


def format_beyond(value: float, limit: float) -> tuple[str, str]:
    """Format a value and the limit that it exceeds, with as many digits as it takes to tell them apart.

    Two digits are usual: `0.014` and `0.01`, but `0.0104` and `0.01`.
    """
    for digits in range(2, 17):
        told = f"{value:.{digits}g}", f"{limit:.{digits}g}"
        if told[0] != told[1]:
            break
    return told
