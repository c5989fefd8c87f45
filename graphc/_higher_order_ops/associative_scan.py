"""torch._higher_order_ops.associative_scan."""

from __future__ import annotations

from ..frontend.control import associative_scan as associative_scan
