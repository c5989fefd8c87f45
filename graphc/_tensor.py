"""torch._tensor: the class and what its handler of calls does with results."""

from __future__ import annotations

from .frontend.overriding import converted as _convert  # noqa: F401
from .frontend.tensor import Tensor as Tensor
from .serialization import _rebuild_from_type as _rebuild_from_type_v2  # noqa: F401
