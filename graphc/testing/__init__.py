"""torch.testing: comparisons that say how far apart two results are."""

from .comparison import assert_allclose as assert_allclose
from .comparison import assert_close as assert_close
from .making import make_tensor as make_tensor
