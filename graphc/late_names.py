"""Names of torch, and Tensor methods, whose modules load when used: linalg, fft, storages, ..."""

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
        lu lu_solve lu_unpack matrix_exp matrix_power matrix_rank nuclear_norm orgqr ormqr pinverse
        qr slogdet solve svd symeig triangular_solve
    """,
    ".fft.spectrogram": "stft istft",
    ".special": "i0 polygamma",
}
# module -> functions that are no methods of tensors
_FUNCTIONS = {
    ".linalg.lowrank": "svd_lowrank pca_lowrank",
    ".nn.cells": "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    ".nn.functional.fake_quantize": """
        fake_quantize_per_channel_affine fake_quantize_per_tensor_affine
    """,
    ".nn.functional.native": """
        native_layer_norm native_group_norm native_batch_norm native_dropout grid_sampler
        grid_sampler_2d grid_sampler_3d
    """,
    ".nn.functional.positional": """
        alpha_dropout batch_norm binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss
        dropout embedding embedding_bag feature_alpha_dropout group_norm hinge_embedding_loss
        instance_norm kl_div layer_norm margin_ranking_loss poisson_nll_loss triplet_margin_loss
        convolution feature_dropout norm_except_dim
    """,
    ".nn.functional.variants": "celu_ rrelu_ selu_ threshold_",
    ".sparse.functions": "dsmm hspmm saddmm smm spmm sspaddmm",
    ".storage": """
        is_storage BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage
        ComplexFloatStorage DoubleStorage FloatStorage HalfStorage IntStorage LongStorage
        ShortStorage TypedStorage
    """,
    ".streams": "Event Stream",
    ".symbolic_numbers": "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
}
_NOT_METHODS = {n for t in _FUNCTIONS.values() for n in t.split()} | {
    "lu_unpack", "nuclear_norm", "frobenius_norm", "adaptive_max_pool1d"
}
_RENAMED = {
    "adaptive_max_pool1d": (".nn.functional.unpooling", "adaptive_max_pool1d_with_indices"),
    "igamma": (".special", "gammainc"), "igammac": (".special", "gammaincc"),
    "mvlgamma": (".special", "multigammaln"),
}

PLACES: dict[str, tuple[str, str]] = _RENAMED | {
    name: (module, name)
    for module, text in (_MODULES | _FUNCTIONS).items() for name in text.split()
}
# methods of dense tensors that lead to sparse ones, or say that they lead from them alone
_SPARSE = """
    to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc sparse_mask
    coalesce is_coalesced indices values _indices _values _nnz crow_indices col_indices ccol_indices
    row_indices
""".split()
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


def _of_nn(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        functional = importlib.import_module(".nn.functional", __package__)
        return getattr(functional, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"torch.nn.functional.{name}."
    return method


def _storage(self: Any) -> Any:
    """The memory under the tensor as elements of its dtype. Deprecated: untyped_storage()."""
    return importlib.import_module(".storage", __package__).storage(self)


def _sparse(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = importlib.import_module(".sparse", __package__).DENSE_METHODS[name]
        return found(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"torch.Tensor.{name}."
    return method


def methods(inplace: Callable[..., Any]) -> dict[str, Any]:
    """The Tensor methods; `inplace(target, value)` writes a value into a tensor."""
    found: dict[str, Any] = {n: _method(n) for n in PLACES if n not in _NOT_METHODS}
    found["storage"] = _storage
    for name in ("hardshrink", "prelu"):
        found[name] = _of_nn(name)
    found |= {name: _sparse(name) for name in _SPARSE}
    for name in _IN_PLACE:
        function = found[name]

        @functools.wraps(function)
        def written(self: Any, *args: Any, _f: Any = function, **kwargs: Any) -> Any:
            return inplace(self, _f(self, *args, **kwargs))

        written.__name__ = f"{name}_"
        found[f"{name}_"] = written
    return found
