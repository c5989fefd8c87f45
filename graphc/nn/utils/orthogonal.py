"""Orthogonal matrices from matrices without constraints."""

from __future__ import annotations

import importlib
from typing import Any

from ...frontend import functions as T
from ...frontend.grad_mode import no_grad
from ...frontend.tensor import Tensor
from ..modules.module import Module

MAPS = ("matrix_exp", "cayley", "householder")


def _linalg() -> Any:
    """Loaded at first use: factorisations need more than other layers do."""
    return importlib.import_module("graphc.linalg")


def _geqrf(matrix: Tensor) -> Any:
    return importlib.import_module("graphc.linalg.former").geqrf(matrix)


def check_map(weight: Tensor, name: str | None) -> str:
    """The map, torch's default for the weight's shape where none is given."""
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if name is None:
        square = weight.shape[-2] == weight.shape[-1]
        return "matrix_exp" if square or weight.is_complex() else "householder"
    if name not in MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{name}"
        )
    return name


class _Orthogonal(Module):
    """The map from a free matrix to an orthogonal one (columns, where it is tall)."""

    def __init__(self, weight: Tensor, kind: str, use_trivialization: bool = True) -> None:
        super().__init__()
        if kind == "householder" and weight.is_complex():
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.kind = kind
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        rows, columns = int(X.shape[-2]), int(X.shape[-1])
        wide = rows < columns
        if wide:
            X = X.mT
            rows, columns = columns, rows
        if self.kind == "householder":
            lower = X.tril(-1)
            taus = 2.0 / (1.0 + (lower * lower).sum(-2))
            signs = X.diagonal(0, -2, -1).int().unsqueeze(-2)  # 1 or -1, without a gradient
            Q = _linalg().householder_product(lower, taus) * signs
        else:
            Q = self._by_skew(X.tril(), rows, columns)
        base = self._buffers.get("base")
        Q = Q if base is None else base @ Q
        return Q.mT if wide else Q

    def _by_skew(self, lower: Tensor, rows: int, columns: int) -> Tensor:
        if rows != columns:
            zeros = lower.new_zeros([*lower.shape[:-1], rows - columns])
            lower = T.cat([lower, zeros], -1)
        skew = lower - lower.mH
        if self.kind == "matrix_exp":
            Q = _linalg().matrix_exp(skew)
        else:
            identity = T.eye(rows, dtype=lower.dtype)
            Q = _linalg().solve(identity - skew * 0.5, identity + skew * 0.5)
        return Q[..., :columns] if rows != columns else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        """What the map takes back to Q (made orthogonal first)."""
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        with no_grad():
            wide = Q.shape[-2] < Q.shape[-1]
            tall = Q.mT if wide else Q
            if "base" not in self._buffers:
                free = self._reflectors(tall)
                return free.mT if wide else free
            self.base = _completed(tall)
            start = T.zeros_like(Q)  # minus the identity: Householder's map of it is the identity
            start.diagonal(0, -2, -1).fill_(-1.0)
            return start

    def _reflectors(self, tall: Tensor) -> Tensor:
        if self.kind != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        A, tau = _geqrf(tall)
        A.diagonal(0, -2, -1).sign_()
        A.diagonal(0, -2, -1)[tau == 0.0] *= -1  # LAPACK's sign of a reflection left out
        return A


def _completed(tall: Tensor) -> Tensor:
    """A square orthogonal matrix that begins with the columns made orthogonal."""
    rows, columns = int(tall.shape[-2]), int(tall.shape[-1])
    if rows != columns:
        rest = T.randn([*tall.shape[:-2], rows, rows - columns], dtype=tall.dtype)
        tall = T.cat([tall, rest], -1)
    elif T.allclose(
        tall.mH @ tall, T.eye(rows, dtype=tall.dtype), atol=10.0 * rows * T.finfo(tall.dtype).eps
    ):
        return tall.clone()
    A, tau = _geqrf(tall)
    return _linalg().householder_product(A, tau) * A.diagonal(0, -2, -1).sgn().unsqueeze(-2)
