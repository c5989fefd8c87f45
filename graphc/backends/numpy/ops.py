"""The NumPy backend's table: every operator as a function of arrays, and the eager runner."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.ir import interpret
from graphc.ir.op import Op

from . import (
    complex_numbers,
    composite,
    contract,
    elementwise,
    indexing,
    movement,
    random,
    sorting,
)
from .common import Array, Function, be_as_before, be_quiet
from .counter import draws
from .order import channels_kept, each, laid_out, row_major

# what few programs compute: the modules that have it are imported when it is first called
_LATE = {
    "boxes": "box_pool box_pool_grad box_argmax",
    "fourier": "fft_complex fft_real fft_inverse_real",
    "matrices": """
        linalg_solve linalg_inv linalg_cofactor linalg_det linalg_slogdet linalg_cholesky linalg_lu
        lu_permutation solve_triangular linalg_qr linalg_geqrf linalg_svd linalg_eigh linalg_eig
        linalg_pinv matrix_exp
    """,
    "matrices_ldl": "linalg_ldl_factor linalg_ldl_solve",
    "random_sampled": """
        rng_words rng_normal_pairs rng_poisson rng_binomial rng_gamma rng_uniform_where
    """,
    "sparse": "sparse_product sparse_sampled",
    "special_functions": """
        i0 i1 i0e i1e erfcx ndtri log_ndtr bessel_j0 bessel_j1 bessel_y0 bessel_y1
        modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1
        airy_ai gammainc gammaincc zeta polygamma
    """,
    "winograd": "winograd_input winograd_filter winograd_output",
}


def _late(module: str, name: str) -> Function:
    def function(*args: Any, **kwargs: Any) -> Any:
        table = importlib.import_module(f".{module}", __package__).TABLE
        return table[name](*args, **kwargs)

    return function


TABLE: dict[str, Function] = {
    **elementwise.TABLE,
    **movement.TABLE, **sorting.TABLE,
    **indexing.TABLE,
    **contract.TABLE,
    **random.TABLE,
    **composite.TABLE,
    **complex_numbers.TABLE,
    **{name: _late(module, name) for module, text in _LATE.items() for name in text.split()},
}


# What runs: the TABLE, or faster functions that give the same bits (`use`).
HOST: dict[str, Function] = dict(TABLE)
_EAGER = {**HOST, **draws(HOST)}


def use(functions: Mapping[str, Function]) -> None:
    """From now on these serve in the TABLE's place, but for references."""
    HOST.update(functions)
    _EAGER.update(functions)
    _EAGER.update(draws(HOST))


def run(op: Op, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> Any:
    """Apply one operator to arrays: an array, or a tuple of them. Views share memory.

    Raises IndexError or RuntimeError for values the operator does not take (an index out of
    range, an integer division by zero).
    """
    function = _EAGER.get(op.name)
    if function is None:
        return interpret.run_control(op, arrays, attrs, TABLE)
    if op.family in SILENT:
        out = function(*arrays, **attrs)
    else:
        token = be_quiet()
        try:
            out = function(*arrays, **attrs)
        finally:
            be_as_before(token)
    if op.elementwise:
        for array in arrays:
            if not array.flags.c_contiguous:
                return laid_out(out, arrays)
        return out if out.flags.c_contiguous else laid_out(out, arrays)
    if op.keeps_channels:
        return each(out, arrays, channels_kept(op))
    if op.view or (op.family in AS_LEFT and not op.in_its_order):
        return out
    return each(out, arrays, laid_out if op.keeps_order else row_major)


# whose results lie as NumPy, or LAPACK, leaves them
AS_LEFT = frozenset({"routine", "control", "contract", "window", "random", "structure"})
SILENT = frozenset({"movement", "create", "index", "compare"})
