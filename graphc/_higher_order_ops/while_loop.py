"""torch._higher_order_ops.while_loop."""

from __future__ import annotations

from ..frontend.control import while_loop as while_loop
