"""torch.mtia: says truthfully that there is no such device."""

from __future__ import annotations

from .absent_device import names

globals().update(names("torch.mtia"))
