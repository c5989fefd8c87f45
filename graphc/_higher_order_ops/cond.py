"""torch._higher_order_ops.cond."""

from __future__ import annotations

from ..frontend.control import cond as cond
