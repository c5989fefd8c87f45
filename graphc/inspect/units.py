"""Quantities as a person reads them."""

from __future__ import annotations


def si(value: float) -> str:
    """A number with a decimal prefix: 1.23 M."""
    for prefix in ("", "k", "M", "G"):
        if value < 999.5 or prefix == "G":  # three digits are rounded to a thousand from there on
            return f"{value:.3g} {prefix}" if value < 999.5 else f"{value:.0f} {prefix}"
        value /= 1000
    raise AssertionError


def bytes_text(count: int) -> str:
    """Bytes with a decimal prefix: 1.23 MB."""
    return f"{si(count)}B"


def seconds_text(seconds: float) -> str:
    """Three digits with a unit: 1.23 ms."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * factor:
            count = seconds / factor
            return f"{count:.3g} {unit}" if count < 999.5 else f"{count:.0f} {unit}"
    return f"{1e9 * seconds:.3g} ns"


def counted(count: int, what: str) -> str:
    """1 step, 1,234 steps."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
