"""torch.ao: so far, names that say that they are missing."""

from . import quantization as quantization
