"""Quantities as a person reads them."""

from __future__ import annotations


def si(value: float) -> str:
    """A number with a decimal prefix: 1.23 M."""
    for prefix in ("", "k", "M", "G"):
        if value < 1000 or prefix == "G":
            return f"{value:.3g} {prefix}" if value < 1000 else f"{value:.0f} {prefix}"
        value /= 1000
    raise AssertionError


def bytes_text(count: int) -> str:
    """Bytes with a decimal prefix: 1.23 MB."""
    return f"{si(count)}B"
