"""torch.version: the PyTorch whose behaviour graphc follows, as packages parse it."""

from __future__ import annotations

import re
from typing import Any

_RELEASE = re.compile(r"(\d+(?:\.\d+)*)")


def _release(version: Any) -> tuple[int, ...]:
    """The numbers of a version, without trailing zeros: "2.0.0+cu1" -> (2,)."""
    if isinstance(version, str):
        found = _RELEASE.match(version.strip())
        if found is None:
            raise ValueError(f"Invalid version: {version!r}")
        parts = [int(part) for part in found[1].split(".")]
    else:
        parts = [int(part) for part in version]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _number_order(name: str) -> Any:
    def compare(self: TorchVersion, other: Any) -> Any:
        if isinstance(other, str | tuple | list) or hasattr(other, "release"):
            other = getattr(other, "release", other)
            return getattr(_release(str(self)), name)(_release(other))
        return NotImplemented

    compare.__name__ = name
    return compare


class TorchVersion(str):
    """A version string that compares by numbers with strings, tuples and packaging's Version."""

    __slots__ = ()
    __lt__ = _number_order("__lt__")
    __le__ = _number_order("__le__")
    __gt__ = _number_order("__gt__")
    __ge__ = _number_order("__ge__")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other) or (
                "+" not in other and bool(_RELEASE.match(other))
                and _release(str(self)) == _release(other)
            )
        if isinstance(other, tuple | list):
            return _release(str(self)) == _release(other)
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


__version__ = TorchVersion("2.13.0+graphc")
debug = False
cuda: str | None = None
cudnn: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
mtia: str | None = None
git_version = "Unknown"
