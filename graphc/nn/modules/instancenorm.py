"""torch.nn.modules.instancenorm."""

from .lazy_norm import LazyInstanceNorm1d as LazyInstanceNorm1d
from .lazy_norm import LazyInstanceNorm2d as LazyInstanceNorm2d
from .lazy_norm import LazyInstanceNorm3d as LazyInstanceNorm3d
from .normalization import InstanceNorm1d as InstanceNorm1d
from .normalization import InstanceNorm2d as InstanceNorm2d
from .normalization import InstanceNorm3d as InstanceNorm3d
from .normalization import _InstanceNorm as _InstanceNorm
