"""torch's conjugate and negative views in files, which name what lies in the storage and a bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "conj": lambda t, z: z.conj(),
    "neg": lambda t, z: z.conj().imag,
    "both": lambda t, z: z.conj().imag.neg(),
    "parameter": lambda t, z: t.nn.Parameter(z.conj()),
    "leaf": lambda t, z: z.conj().requires_grad_(),
    "part": lambda t, z: z.conj()[1:],
}


def saved(t: Any, name: str, **options: Any) -> io.BytesIO:
    z = t.tensor([1 + 2j, 3 - 4j, -0.5j])
    file = io.BytesIO()
    t.save([z.clone(), VIEWS[name](t, z)], file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_values_go_both_ways(name: str, weights_only: bool) -> None:
    for writer, reader in ((torch, graphc), (graphc, torch), (graphc, graphc)):
        file = saved(writer, name)
        plain, found = reader.load(file, weights_only=weights_only)
        file.seek(0)
        _, wanted = torch.load(file, weights_only=weights_only)
        assert plain.tolist() == [1 + 2j, 3 - 4j, -0.5j]
        np.testing.assert_array_equal(
            found.detach().resolve_conj().resolve_neg().numpy(),
            VIEWS[name](torch, torch.tensor(plain.tolist())).detach().resolve_conj()
            .resolve_neg().numpy(),
        )
        assert found.tolist() == wanted.tolist()
        assert found.requires_grad == wanted.requires_grad and found.is_leaf


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", ["conj", "neg"])
def test_refused_in_the_old_format(name: str, weights_only: bool) -> None:
    file = saved(torch, name, _use_new_zipfile_serialization=False)
    with pytest.raises(Exception, match="resolve_conj"):
        graphc.load(file, weights_only=weights_only)


def test_bits_that_torch_does_not_have() -> None:
    from graphc.serialization_bits import resolved
    from graphc.unpickle import UnpicklingError

    for bits in ({"other": True}, ["conj"], 3):
        with pytest.raises(UnpicklingError, match="metadata"):
            resolved(graphc.ones(2), bits)
