"""torch.fft: discrete Fourier transforms with gradients.

pocketfft by way of NumPy: float32 gives complex64. A compiled graph calls the same code.
"""

from graphc.frontend.autocast import all_listed
from graphc.frontend.tensors_only import tensors_only

from .shifts import fftfreq, fftshift, ifftshift, rfftfreq
from .transforms import (
    fft,
    fft2,
    fftn,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]

globals().update(tensors_only(all_listed(globals(), "fft_"), __name__, "fft_"))
