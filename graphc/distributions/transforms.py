"""torch.distributions.transforms: every transform, by name."""

from .transforms_base import ComposeTransform as ComposeTransform
from .transforms_base import IndependentTransform as IndependentTransform
from .transforms_base import ReshapeTransform as ReshapeTransform
from .transforms_base import Transform as Transform
from .transforms_base import identity_transform as identity_transform
from .transforms_event import CatTransform as CatTransform
from .transforms_event import CorrCholeskyTransform as CorrCholeskyTransform
from .transforms_event import LowerCholeskyTransform as LowerCholeskyTransform
from .transforms_event import PositiveDefiniteTransform as PositiveDefiniteTransform
from .transforms_event import SoftmaxTransform as SoftmaxTransform
from .transforms_event import StackTransform as StackTransform
from .transforms_event import StickBreakingTransform as StickBreakingTransform
from .transforms_scalar import AbsTransform as AbsTransform
from .transforms_scalar import AffineTransform as AffineTransform
from .transforms_scalar import CumulativeDistributionTransform as CumulativeDistributionTransform
from .transforms_scalar import ExpTransform as ExpTransform
from .transforms_scalar import PowerTransform as PowerTransform
from .transforms_scalar import SigmoidTransform as SigmoidTransform
from .transforms_scalar import SoftplusTransform as SoftplusTransform
from .transforms_scalar import TanhTransform as TanhTransform
from .transforms_scalar import _clipped_sigmoid as _clipped_sigmoid

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform",
    "CorrCholeskyTransform", "CumulativeDistributionTransform", "ExpTransform",
    "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
    "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
    "Transform", "identity_transform",
]
