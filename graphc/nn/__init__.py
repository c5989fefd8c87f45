"""torch.nn: layers, losses, functional forms, initialisation."""

from typing import TYPE_CHECKING

from ..on_demand import on_demand
from . import modules

if TYPE_CHECKING:
    from . import (
        attention,
        common_types,
        functional,
        grad,
        init,
        parallel,
        parameter,
        quantized,
        utils,
    )
    from .modules import *  # noqa: F403
    from .parallel import DataParallel
    from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

_NAMES = {
    "modules": " ".join(modules._NAMES.values()),
    "parallel": "DataParallel",
    "parameter": "Buffer Parameter UninitializedBuffer UninitializedParameter",
}
_PARTS = "common_types functional grad init modules parallel parameter utils".split()

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = on_demand(__name__, _NAMES, (*_PARTS, "attention", "quantized"))
    __all__ += _PARTS
