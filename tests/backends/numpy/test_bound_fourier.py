"""Fourier transforms of arrays of known types: the bits of NumPy's public functions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graphc as torch
from graphc.backends.numpy import bound_fourier, prepared
from graphc.backends.numpy.fourier import TABLE
from graphc.ir.dim import DimEnv
from graphc.ir.dtypes import from_numpy
from graphc.ir.op import REGISTRY
from graphc.ir.types import TensorType

SHAPES = [(1,), (2,), (5,), (8,), (3, 4), (4, 3, 2), (0, 4), (3, 1)]


def layouts(x):
    yield x
    yield np.asfortranarray(x)
    yield np.repeat(x, 2, 0)[::2]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", TABLE)
def test_the_bits_and_the_layouts_are_numpys(name, wide):
    random, tight = np.random.default_rng(2), 0
    for shape, scale in itertools.product(SHAPES, (1.0, 0.25, -0.3)):
        for dim in range(len(shape)):
            x = random.standard_normal(shape)
            if name != "fft_real":
                x = x + 1j * random.standard_normal(shape)
            if not shape[dim]:
                continue
            x = x.astype({"f": "fd", "c": "FD"}[x.dtype.kind][wide])
            attrs = {"dims": (dim,), "scale": scale}
            ways = [attrs]
            if name == "fft_complex":
                ways = [{**attrs, "inverse": inverse} for inverse in (False, True)]
            elif name == "fft_inverse_real":
                n = shape[dim]
                ways = [{**attrs, "size": size} for size in (2 * n - 2, 2 * n - 1) if size > 0]
            for way in ways:
                types = (TensorType(from_numpy(x.dtype), shape),)
                op = REGISTRY[name]
                result = op.infer(types, way, DimEnv())
                ready = prepared.prepare(op, types, way, (result,))
                tight += bound_fourier.TABLE[name](types, **way) is not None
                for y in layouts(x):
                    kept, right = y.copy(), TABLE[name](y, **way)
                    for _ in range(2):
                        found = ready(y)
                        assert found.dtype == right.dtype and found.shape == right.shape
                        assert found.strides == right.strides
                        assert found.tobytes() == right.tobytes()
                    assert y.tobytes() == kept.tobytes()
    assert tight > 20


def test_transforms_are_torchs():
    reference = pytest.importorskip("torch")

    def outcomes(engine):
        x, found = engine.arange(6.0).sin(), []
        for _ in range(3):
            for n, norm in itertools.product((None, 4, 9), (None, "ortho", "forward")):
                w = x.clone().requires_grad_()
                half = engine.fft.rfft(w, n, norm=norm)
                back = engine.fft.irfft(half, n or 6, norm=norm)
                whole = engine.fft.fft(w.reshape(2, 3), n, 0, norm)
                loss = back.square().sum() + engine.view_as_real(whole).square().sum()
                loss.backward()
                found += [half, back, whole, engine.fft.ifft(x, n, norm=norm), w.grad]
            found += [engine.fft.fft(x.double()[::2]), engine.fft.fft2(x.reshape(2, 3))]
        return [f.detach().resolve_conj() for f in found]

    for ours, theirs in zip(outcomes(torch), outcomes(reference), strict=True):
        assert str(ours.dtype) == str(theirs.dtype)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
    for engine in (torch, reference):
        with pytest.raises(RuntimeError):
            engine.fft.fft(engine.ones(0))
