"""torch.fft, stft and istft against PyTorch: values and gradients, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.linalg.compare import compare, sample

pytestmark = pytest.mark.filterwarnings(
    r"ignore:A window was not provided", r"ignore:stft with return_complex=False"
)

NAMES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL = ("rfft", "ihfft")  # they take real numbers only
WINDOW = np.hanning(9)[1:]


def _kinds(name: str) -> tuple[str, ...]:
    return ("real",) if name in REAL else ("real", "complex")


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", NAMES)
def test_one_dim(name: str, norm: str | None) -> None:
    for kind in _kinds(name):
        for n in (None, 4, 7) if norm is None else (4,):
            compare(
                lambda t, a, n=n: getattr(t.fft, name)(a, n=n, dim=1, norm=norm),
                sample(2, 5, 3, kind=kind), twice=n == 4 and norm == "ortho",
            )


@pytest.mark.parametrize("name", NAMES)
def test_several_dims(name: str) -> None:
    for kind in _kinds(name):
        x = sample(3, 4, 6, kind=kind)
        compare(lambda t, a: getattr(t.fft, name + "2")(a), x)
        compare(lambda t, a: getattr(t.fft, name + "2")(a, s=(5, 3), norm="ortho"), x)
        compare(lambda t, a: getattr(t.fft, name + "n")(a, dim=(0, 2), s=(4, -1)), x)


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name: str) -> None:
    compare(
        lambda t, a: (getattr(t.fft, name)(a), getattr(t.fft, name + "2")(a, norm="ortho")),
        sample(3, 4, 6, kind=_kinds(name)[-1]), compiled=True,
    )


def test_dtypes() -> None:
    x = sample(4, 6).astype(np.float32)
    compare(lambda t, a: (t.fft.fft(a), t.fft.rfft(a), t.fft.irfft(a)), x, tolerance=2e-5)
    compare(
        lambda t, a: (t.fft.fft(a), t.fft.rfft(a)), np.arange(6), grad=False, tolerance=1e-5
    )


def test_frequencies_and_shifts() -> None:
    compare(
        lambda t, a: (t.fft.fftshift(a), t.fft.ifftshift(a, dim=1), t.fft.fftshift(a, dim=(0, 2))),
        sample(3, 4, 5),
    )
    compare(
        lambda t, a: (t.fft.fftfreq(7), t.fft.fftfreq(8, d=0.1), t.fft.rfftfreq(7, 0.5)),
        np.zeros(1), grad=False, tolerance=1e-6,
    )
    compare(
        lambda t, a: (t.fft.fftfreq(0), t.fft.fftfreq(1), t.fft.rfftfreq(1)),
        np.zeros(1), grad=False, tolerance=1e-6,
    )


def _round_trip(t: Any, a: Any, b: Any, **options: Any) -> Any:
    normalized = options.pop("normalized", False)
    spectrum = t.stft(
        a, 8, hop_length=2, window=b, normalized=normalized, return_complex=True
    )
    return t.istft(spectrum, 8, hop_length=2, window=b, normalized=normalized, **options)


SPECTROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "plain": (lambda t, a: t.stft(a, 8, return_complex=True), (sample(2, 40),)),
    "window": (
        lambda t, a, b: t.stft(a, 8, 3, window=b, normalized=True, return_complex=True),
        (sample(2, 40), WINDOW),
    ),
    "short window": (
        lambda t, a, b: t.stft(
            a, 8, 3, 6, window=b, center=False, onesided=False, return_complex=False
        ),
        (sample(2, 40), WINDOW[:6].copy()),
    ),
    "one signal": (lambda t, a: a.stft(8, return_complex=True), (sample(40),)),
    "inverse": (_round_trip, (sample(2, 40), WINDOW)),
    "inverse of a length": (
        lambda t, a, b: _round_trip(t, a, b, normalized=True, length=37), (sample(2, 40), WINDOW)
    ),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", sorted(SPECTROGRAMS))
def test_spectrograms(name: str, compiled: bool) -> None:
    function, arrays = SPECTROGRAMS[name]
    compare(function, *arrays, compiled=compiled)


def test_errors() -> None:
    import graphc
    from tests.linalg.compare import torch

    for call in (
        lambda t: t.fft.fft(t.ones(3), norm="x"), lambda t: t.fft.fft(t.ones(3), n=0),
        lambda t: t.fft.rfft(t.ones(3, dtype=t.complex64)), lambda t: t.fft.fft(t.ones(3), dim=2),
        lambda t: t.fft.fftn(t.ones(3), dim=(0, 0)), lambda t: t.fft.fftn(t.ones(3), s=(1, 2)),
        lambda t: t.stft(t.ones(9), 4), lambda t: t.stft(t.ones(9), 40, return_complex=True),
    ):
        with pytest.raises(Exception) as theirs:
            call(torch)
        with pytest.raises(type(theirs.value)):
            call(graphc)


def test_a_compiled_transform_takes_other_sizes() -> None:
    import graphc

    compiled = graphc.compile(lambda x: graphc.fft.irfft(graphc.fft.rfft(x) * 0.5, n=x.shape[-1]))
    for n in (8, 9, 12):
        x = graphc.randn(2, n)
        np.testing.assert_allclose(compiled(x).numpy(), x.numpy() / 2, rtol=1e-5, atol=1e-6)
