"""torch.ao: quantization by integers is missing, and its names say so."""

from ..nn import quantized as _quantized
from . import quantization as quantization
