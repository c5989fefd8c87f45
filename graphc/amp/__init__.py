"""torch.amp: automatic mixed precision."""

from .autocast_mode import autocast as autocast
from .autocast_mode import custom_bwd as custom_bwd
from .autocast_mode import custom_fwd as custom_fwd
from .grad_scaler import GradScaler as GradScaler
from .state import is_autocast_available as is_autocast_available

# what torch's module of this name gives to `import *`
__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "is_autocast_available",
]
