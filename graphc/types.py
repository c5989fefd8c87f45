"""torch.types: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from .frontend.device import device as _device_type
from .frontend.numbers import Size as Size
from .frontend.tensor import Tensor
from .ir.dtypes import DType

_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
TensorOrTensors: TypeAlias = _TensorOrTensors
_dtype = DType
_device = _device_type
_size: TypeAlias = Size | list[builtins.int] | tuple[builtins.int, ...]
Number: TypeAlias = builtins.int | builtins.float | builtins.bool
_Number = (builtins.int, builtins.float, builtins.bool)
_complex = builtins.complex
_int, _float, _bool = builtins.int, builtins.float, builtins.bool
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Device: TypeAlias = Any
DeviceLikeType: TypeAlias = str | _device_type | builtins.int
Storage: TypeAlias = Any
