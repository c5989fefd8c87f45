"""torch._higher_order_ops: control flow as operators."""

from __future__ import annotations

from ..frontend.control import associative_scan as associative_scan
from ..frontend.control import cond as cond
from ..frontend.control import map as map
from ..frontend.control import scan as scan
from ..frontend.control import while_loop as while_loop
