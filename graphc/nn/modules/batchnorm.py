"""torch.nn.modules.batchnorm."""

from . import normalization
from .lazy_norm import LazyBatchNorm1d as LazyBatchNorm1d
from .lazy_norm import LazyBatchNorm2d as LazyBatchNorm2d
from .lazy_norm import LazyBatchNorm3d as LazyBatchNorm3d
from .normalization import BatchNorm1d as BatchNorm1d
from .normalization import BatchNorm2d as BatchNorm2d
from .normalization import BatchNorm3d as BatchNorm3d
from .normalization import SyncBatchNorm as SyncBatchNorm
from .normalization import _BatchNorm as _BatchNorm

_NormBase = normalization._Norm
