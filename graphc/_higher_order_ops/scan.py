"""torch._higher_order_ops.scan."""

from __future__ import annotations

from ..frontend.control import scan as scan
