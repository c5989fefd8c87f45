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


def check_map(weight: Tensor, name: str | None) -> str:
    """The map, torch's default for the weight's shape where none is given."""
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if name is None:
        return "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if name not in MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{name}"
        )
    return name


class Orthogonal(Module):
    """The map from a free matrix to an orthogonal one (columns, where it is tall)."""

    def __init__(self, weight: Tensor, kind: str, use_trivialization: bool = True) -> None:
        super().__init__()
        self.kind = kind
        if kind == "householder":
            return
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        rows, columns = int(X.shape[-2]), int(X.shape[-1])
        wide = rows < columns
        if wide:
            X = X.transpose(-2, -1)
            rows, columns = columns, rows
        if self.kind == "householder":
            scale = X.diagonal(0, -2, -1).sign()
            taus = 2.0 / (1.0 + X.tril(-1).square().sum(-2))
            Q = _linalg().householder_product(X, taus) * scale.unsqueeze(-2)
        else:
            Q = self._by_skew(X, rows, columns)
        return Q.transpose(-2, -1) if wide else Q

    def _by_skew(self, X: Tensor, rows: int, columns: int) -> Tensor:
        lower = X.tril()
        if rows != columns:
            zeros = T.zeros([*X.shape[:-1], rows - columns], dtype=X.dtype)
            lower = T.cat([lower, zeros], -1)
        skew = lower - lower.transpose(-2, -1)
        if self.kind == "matrix_exp":
            Q = _linalg().matrix_exp(skew)
        else:
            identity = T.eye(rows, dtype=X.dtype)
            Q = _linalg().solve(identity - skew * 0.5, identity + skew * 0.5)
        if rows != columns:
            Q = Q[..., :columns]
        base = self._buffers.get("base")
        return Q if base is None else base @ Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        """What the map takes back to Q (made orthogonal first)."""
        with no_grad():
            wide = Q.shape[-2] < Q.shape[-1]
            tall = Q.transpose(-2, -1) if wide else Q
            rows, columns = int(tall.shape[-2]), int(tall.shape[-1])
            if "base" not in self._buffers and self.kind != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    "parametrizations when use_trivialization=False."
                )
            A, tau = _linalg().geqrf(tall) if hasattr(_linalg(), "geqrf") else (
                importlib.import_module("graphc").geqrf(tall))
            if self.kind == "householder":
                A.diagonal(0, -2, -1).sign_()
                A.diagonal(0, -2, -1)[A.diagonal(0, -2, -1) == 0.0] = 1.0
                return A.transpose(-2, -1) if wide else A
            if rows == columns:
                full = _linalg().householder_product(A, tau)
                full = full * A.diagonal(0, -2, -1).sign().unsqueeze(-2)
            else:
                basis = tall.new_empty([*tall.shape[:-2], rows, rows - columns]).normal_()
                full = _linalg().qr(T.cat([tall, basis], -1))[0]
                full = T.cat([tall, full[..., columns:]], -1)
            self.base = full
            start = T.zeros_like(Q)
            start.diagonal(0, -2, -1).fill_(1.0)
            return start
