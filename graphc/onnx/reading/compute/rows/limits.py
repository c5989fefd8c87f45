"""How much a file's numbers may ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .....frontend.numbers import is_traced_number
from ..table import Node

MOST = 1 << 31  # elements of what an operator makes of sizes alone


def check_count(node: Node, sizes: Sequence[Any]) -> None:
    """Refuse results that no machine holds before anything is allocated."""
    plain = [int(size) for size in sizes if not is_traced_number(size)]
    if any(size < 0 for size in plain):
        node.refuse(f"a size of {plain} is negative", "give it sizes that are not")
    if math.prod(plain) > MOST:
        node.refuse(
            f"its result would have the shape {plain}, more than {MOST} elements",
            "give it smaller sizes",
        )
