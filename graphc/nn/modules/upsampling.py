"""torch.nn.modules.upsampling."""

from .padding import Upsample as Upsample
from .padding import UpsamplingBilinear2d as UpsamplingBilinear2d
from .padding import UpsamplingNearest2d as UpsamplingNearest2d
