"""torch.stft and torch.istft: the Fourier transforms of overlapping windows of a signal."""

from __future__ import annotations

from typing import Any

import graphc
from graphc.frontend.errors import located
from graphc.frontend.tensor import Tensor

from . import transforms


def _window(
    name: str, window: Tensor | None, win_length: int, n_fft: int, dtype: Any
) -> Tensor:
    """The window of `win_length`, in the middle of `n_fft` zeros."""
    if window is None:
        window = graphc.ones(win_length, dtype=dtype.to_real())
    if window.ndim != 1 or window.shape[0] != win_length:
        raise RuntimeError(located(
            f"{name} expected a 1D window tensor of size equal to win_length={win_length}, but got "
            f"window with size {list(window.shape)}"
        ))
    left = (n_fft - win_length) // 2
    if left or n_fft != win_length:
        window = graphc.nn.functional.pad(window, (left, n_fft - win_length - left))
    return window


def _check(name: str, n_fft: int, hop: int, length: int, samples: int | None) -> None:
    wrong = ""
    if samples is not None and not 0 < n_fft <= samples:
        wrong = f"expected 0 < n_fft < {samples}, but got n_fft={n_fft}"
    elif hop <= 0:
        wrong = f"expected hop_length > 0, but got hop_length={hop}"
    elif not 0 < length <= n_fft:
        wrong = f"expected 0 < win_length <= n_fft, but got win_length={length}"
    if wrong:
        raise RuntimeError(located(f"{name}: {wrong}"))


def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect",
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """[*, frequencies, frames] of a signal [*, time]; complex, or pairs of real numbers."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    complex_in = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None:
        return_complex = complex_in
        if not complex_in:
            raise RuntimeError(located(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release."
            ))
    if not input.dtype.differentiable or input.ndim not in (1, 2):
        raise RuntimeError(located(
            "stft: expected a tensor of floating point or complex values with 1 or 2 dimensions, "
            f"but got {input.dtype} with {input.ndim}"
        ))
    signal = input.unsqueeze(0) if input.ndim == 1 else input
    if center:
        signal = graphc.nn.functional.pad(
            signal.unsqueeze(1), (n_fft // 2, n_fft // 2), mode=pad_mode
        ).squeeze(1)
    _check("stft", n_fft, hop, length, signal.shape[-1])
    frames = signal.unfold(-1, n_fft, hop)
    if window is not None or length < n_fft:
        frames = frames * _window("stft", window, length, n_fft, input.dtype)
    norm = "ortho" if normalized else "backward"
    half = not complex_in if onesided is None else onesided
    spectrum = (transforms.rfft if half else transforms.fft)(frames, norm=norm)
    found = spectrum.transpose(1, 2)
    if input.ndim == 1:
        found = found.squeeze(0)
    return found if return_complex else graphc.view_as_real(found.contiguous())


def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:
    """The signal of an stft: windows added up, over the sum of their squares."""
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    if not input.dtype.is_complex:
        raise RuntimeError(located(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        ))
    _check("istft", n_fft, hop, size, None)
    half = input.shape[-2] != n_fft if onesided is None else onesided
    expected = n_fft // 2 + 1 if half else n_fft
    if input.shape[-2] != expected:
        raise RuntimeError(located(
            "istft: expected the frequency dimension (3rd to the last) of the input tensor to match"
            f" n_fft {'/ 2 + 1 ' if half else ''}when onesided={half}, but got {input.shape[-2]}"
        ))
    taper = _window("istft", window, size, n_fft, input.dtype)
    spectrum = (input.unsqueeze(0) if input.ndim == 2 else input).transpose(1, 2)
    norm = "ortho" if normalized else "backward"
    if half:
        frames = transforms.irfft(spectrum, n=n_fft, norm=norm)
    elif return_complex:
        frames = transforms.ifft(spectrum, norm=norm)
    else:  # of a real signal: the other half says nothing new
        frames = transforms.irfft(spectrum[..., : n_fft // 2 + 1], n=n_fft, norm=norm)
    weights = (taper * taper).expand(1, frames.shape[1], n_fft)
    signal, total = _added(frames * taper, hop), _added(weights, hop)
    found = _trimmed(signal, total, n_fft, center, length)
    return found.squeeze(0) if input.ndim == 2 else found


def _trimmed(
    signal: Tensor, total: Tensor, n_fft: int, center: bool, length: int | None
) -> Tensor:
    samples = signal.shape[-1]
    start = n_fft // 2 if center else 0
    stop = samples - start
    if length is not None:
        stop = start + length
    end = min(stop, samples)
    weights = total[..., start:end]
    if bool(weights.detach().abs().min() < 1e-11):
        raise RuntimeError(located("istft: window overlap add min: 1"))
    found = signal[..., start:end] / weights
    if end < stop:
        found = graphc.nn.functional.pad(found, (0, stop - end))
    return found


def _added(frames: Tensor, hop: int) -> Tensor:
    """[b, frames, n] added up at steps of `hop`."""
    batch, count, size = frames.shape
    samples = size + hop * (count - 1)
    places = graphc.arange(count).unsqueeze(-1) * hop + graphc.arange(size)
    empty = graphc.zeros(batch, samples, dtype=frames.dtype)
    return empty.index_add(1, places.reshape(-1), frames.reshape(batch, -1))
