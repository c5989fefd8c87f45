"""NumPy's functions that compiled code of its own serves, without the look for who overrides them,
which arrays do not: that takes as long as they do on few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def _own(function: Any) -> Any:
    return getattr(function, "_implementation", function)


may_share_memory: Any = _own(np.may_share_memory)
where: Any = _own(np.where)
concatenate: Any = _own(np.concatenate)
