"""torch._higher_order_ops.map."""

from __future__ import annotations

from ..frontend.control import map as map
