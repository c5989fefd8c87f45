"""torch.cpu.amp: the older names of torch.amp's classes, for the CPU."""

from .autocast_mode import autocast as autocast
from .grad_scaler import GradScaler as GradScaler
