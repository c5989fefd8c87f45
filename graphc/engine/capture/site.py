"""What every site is."""

from __future__ import annotations

from typing import Any

MISSING = object()  # where there is no value


class Site:
    """Gives its operand back: unpack, spread, is_none and call, done natively afterwards."""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> Any:
        return operand
