"""Learning-rate schedules (torch.optim.lr_scheduler)."""

from .base import (
    LRScheduler,
)
from .combined import (
    ReduceLROnPlateau,
    SequentialLR,
)
from .cycles import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    OneCycleLR,
)
from .decay import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

_LRScheduler = LRScheduler
