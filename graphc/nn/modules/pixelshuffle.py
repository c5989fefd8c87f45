"""torch.nn.modules.pixelshuffle."""

from .padding import PixelShuffle as PixelShuffle
from .padding import PixelUnshuffle as PixelUnshuffle
