"""Names of torch, and Tensor methods, of linalg, fft and special, whose packages load when used."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from .frontend.autocast import listed
from .frontend.autocast_lists import NAMES

# module -> names that torch has besides those of torch.linalg, torch.fft and torch.special
_MODULES = {
    ".linalg.former": """
        cholesky cholesky_inverse cholesky_solve det eig frobenius_norm geqrf inverse logdet lstsq
        lu lu_solve lu_unpack matrix_exp matrix_rank nuclear_norm orgqr ormqr pinverse qr slogdet
        solve svd symeig triangular_solve
    """,
    ".fft.spectrogram": "stft istft",
    ".special": "i0 polygamma",
    ".linalg.lowrank": "svd_lowrank pca_lowrank",
    ".nn.functional.native": """
        native_layer_norm native_group_norm native_batch_norm native_dropout grid_sampler
        grid_sampler_2d grid_sampler_3d
    """,
}
_RENAMED = {
    "igamma": (".special", "gammainc"), "igammac": (".special", "gammaincc"),
    "mvlgamma": (".special", "multigammaln"),
}

PLACES: dict[str, tuple[str, str]] = _RENAMED | {
    name: (module, name) for module, text in _MODULES.items() for name in text.split()
}
_NOT_METHODS = frozenset("""
    lu_unpack nuclear_norm frobenius_norm svd_lowrank pca_lowrank native_layer_norm
    native_group_norm native_batch_norm native_dropout grid_sampler grid_sampler_2d grid_sampler_3d
""".split())
_IN_PLACE = ("i0", "polygamma", "igamma", "igammac", "mvlgamma")


@functools.cache
def load(name: str) -> Any:
    """The function that torch calls NAME."""
    module, attribute = PLACES[name]
    function = getattr(importlib.import_module(module, __package__), attribute)
    if name not in NAMES:
        return function
    made = listed(function, name)
    made.__module__, made.__name__, made.__qualname__ = __package__, name, name  # of pickles
    return made


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return load(name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"torch.{name}."
    return method


def methods(inplace: Callable[..., Any]) -> dict[str, Any]:
    """The Tensor methods; `inplace(target, value)` writes a value into a tensor."""
    found: dict[str, Any] = {n: _method(n) for n in PLACES if n not in _NOT_METHODS}
    for name in _IN_PLACE:
        function = found[name]

        @functools.wraps(function)
        def written(self: Any, *args: Any, _f: Any = function, **kwargs: Any) -> Any:
            return inplace(self, _f(self, *args, **kwargs))

        written.__name__ = f"{name}_"
        found[f"{name}_"] = written
    return found
