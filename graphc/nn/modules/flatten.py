"""torch.nn.modules.flatten."""

from .linear import Flatten as Flatten
from .linear import Unflatten as Unflatten
