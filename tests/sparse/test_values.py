"""What sparse tensors are and give, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import graphc
from tests.sparse.compared import Function, compare, compare_errors, coo, csr, dense, hybrid

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor:UserWarning"),
]

CASES: dict[str, Function] = {
    "given": lambda t: [coo(t), hybrid(t)],
    "given by lists": lambda t: t.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0]),
    "given by integers": lambda t: t.sparse_coo_tensor([[0, 1], [1, 2]], [1, 2], (3, 3)),
    "given by arrays": lambda t: t.sparse_coo_tensor(np.array([[0, 2]]), np.array([1.0, 2.0])),
    "given a dtype": lambda t: t.sparse_coo_tensor([[0, 2]], [1, 2], (4,), dtype=t.float64),
    "given one number": lambda t: t.sparse_coo_tensor(t.tensor([[1], [2]]), 5.0, (2, 3)),
    "a size alone": lambda t: [t.sparse_coo_tensor((2, 3)), t.sparse_coo_tensor(size=(2, 3))],
    "no entries": lambda t: t.sparse_coo_tensor(t.empty(2, 0), t.empty(0), (2, 3)),
    "known to be coalesced": lambda t: t.sparse_coo_tensor(
        [[0, 1], [1, 2]], [1.0, 2.0], (2, 3), is_coalesced=True),
    "a leaf": lambda t: t.sparse_coo_tensor([[0]], [1.0], (2,), requires_grad=True),
    "parts": lambda t: [coo(t)._indices(), coo(t)._values(), coo(t)._nnz(), coo(t).sparse_dim(),
                        coo(t).dense_dim(), hybrid(t).dense_dim(), coo(t).is_coalesced()],
    "coalesced parts": lambda t: [coo(t).coalesce().indices(), coo(t).coalesce().values(),
                                  hybrid(t).coalesce().values(), coo(t).coalesce().coalesce()],
    "facts": lambda t: [coo(t).shape, coo(t).size(1), coo(t).size(), coo(t).dim(), coo(t).numel(),
                        coo(t).is_sparse, coo(t).is_sparse_csr, str(coo(t).layout), len(coo(t)),
                        coo(t).dtype, str(coo(t).device), coo(t).is_floating_point(),
                        coo(t).element_size(), coo(t).type(), t.is_tensor(coo(t)),
                        isinstance(coo(t), t.Tensor), coo(t).is_leaf, t.ones(2).is_sparse,
                        isinstance(coo(t), t.FloatTensor)],
    "to_dense": lambda t: [coo(t).to_dense(), hybrid(t).to_dense()],
    "to_dense of integers": lambda t: [
        t.sparse_coo_tensor([[1, 1, 0]], t.tensor([1, 2, 3], dtype=d), (2,)).to_dense()
        for d in (t.int64, t.int32, t.uint8, t.int8)],
    "to_dense of bools": lambda t: t.sparse_coo_tensor(
        [[1, 1, 0]], [True, True, False], (3,)).to_dense(),
    "to_dense of halves": lambda t: [coo(t, dtype=d).to_dense() for d in (t.float16, t.bfloat16)],
    "to_dense of complex": lambda t: coo(t, dtype=t.complex64).to_dense(),
    "to_sparse": lambda t: [(dense(t, 3, 4) > 0.3).float().to_sparse(), t.eye(3).to_sparse(),
                            t.zeros(2, 3).to_sparse(), t.tensor(2.0).to_sparse(),
                            t.tensor([True, False]).to_sparse(), t.empty(0, 3).to_sparse()],
    "to_sparse of some dims": lambda t: [(t.eye(3).unsqueeze(2) * dense(t, 3, 3, 2)).to_sparse(n)
                                         for n in (1, 2, 3)],
    "to_sparse of strides": lambda t: (dense(t, 3, 4).t() * t.eye(4, 3)).t().to_sparse(),
    "sums": lambda t: [coo(t) + coo(t), coo(t) - coo(t).coalesce() * 2,
                       coo(t).coalesce() + t.eye(4, 5).to_sparse(),
                       dense(t, 4, 5) + coo(t), dense(t, 4, 5) - coo(t),
                       hybrid(t) + hybrid(t), t.add(coo(t), coo(t), alpha=0.5)],
    "sums in place": lambda t: [coo(t).add_(coo(t)), dense(t, 4, 5).add_(coo(t), alpha=-2),
                                coo(t).mul_(3), coo(t).neg_(), coo(t).div_(2), coo(t).zero_(),
                                dense(t, 4, 5).sub_(coo(t))],
    "augmented": lambda t: augmented(t),
    "products with numbers": lambda t: [coo(t) * 2, 2 * coo(t), coo(t) / 4, coo(t) * t.tensor(3.0),
                                        -coo(t), t.mul(coo(t), 2), t.neg(coo(t))],
    "integers times a float": lambda t: t.sparse_coo_tensor([[0, 2]], [1, 2]) * 1.5,
    "products by elements": lambda t: [coo(t) * dense(t, 4, 5), dense(t, 4, 5) * coo(t),
                                       (coo(t) * (t.eye(4, 5).to_sparse() + coo(t))).to_dense(),
                                       hybrid(t) * dense(t, 4, 5, 2)],
    "functions": lambda t: [getattr(t, name)(coo(t) * 0.1) for name in """
        abs neg sign relu expm1 log1p sin tan asin atan sinh tanh asinh atanh erf erfinv floor ceil
        round trunc isnan isinf signbit square""".split()],
    "methods": lambda t: [getattr(coo(t).abs() * 0.1, name)() for name in """
        abs neg sign relu sqrt sin sinh tanh floor ceil trunc square""".split()],
    "degrees": lambda t: [t.deg2rad(coo(t)).coalesce(), t.rad2deg(coo(t)).coalesce()],
    "powers": lambda t: [coo(t) ** 2, t.pow(coo(t), 3.0)],
    "transposed": lambda t: [coo(t).t(), coo(t).transpose(0, 1), coo(t).T.to_dense(),
                             hybrid(t).transpose(0, 1), coo(t).coalesce().t().coalesce()],
    "permuted": lambda t: [hybrid(t).permute(1, 0, 2),
                           t.permute(t.ones(2, 3, 4).to_sparse(), (2, 0, 1)).coalesce()],
    "selected": lambda t: [coo(t)[1], coo(t)[1][0], coo(t).select(1, 0).coalesce(), hybrid(t)[0, 2],
                           coo(t).index_select(0, t.tensor([1, 0, 1])).coalesce(),
                           hybrid(t).index_select(1, t.tensor([2])).coalesce(),
                           coo(t).narrow_copy(0, 1, 2).coalesce()],
    "side by side": lambda t: [t.cat([coo(t), coo(t)]).coalesce(),
                               t.cat([coo(t)] * 2, 1).coalesce(),
                               t.stack([coo(t), coo(t)]).coalesce()],
    "unsqueezed": lambda t: [coo(t).unsqueeze(0).coalesce(), coo(t).unsqueeze(1).coalesce()],
    "summed": lambda t: [coo(t).sum(), t.sparse.sum(coo(t)), t.sparse.sum(coo(t), 0).to_dense(),
                         t.sparse.sum(coo(t), (0, 1)), t.sparse.sum(hybrid(t), 2).to_dense(),
                         t.sparse.sum(hybrid(t), (0, 1)), t.sparse.sum(coo(t), dtype=t.float64)],
    "softmax": lambda t: [t.sparse.softmax(coo(t), d).to_dense() for d in (0, 1, -1)] + [
        t.sparse.log_softmax(coo(t), 1), t.sparse.softmax(hybrid(t), 2),
        t.sparse.softmax(coo(t), 1, dtype=t.float64)],
    "matrix products": lambda t: [
        coo(t) @ dense(t, 5, 3), t.mm(coo(t), dense(t, 5, 3)), t.sparse.mm(coo(t), dense(t, 5, 3)),
        t.matmul(coo(t), dense(t, 5, 3)), coo(t).mm(dense(t, 5, 3)), t.spmm(coo(t), dense(t, 5, 3)),
        coo(t) @ dense(t, 5), t.mv(coo(t), dense(t, 5)), coo(t).t() @ dense(t, 4, 2),
        t.dsmm(coo(t), dense(t, 5, 2))],
    "sums of products": lambda t: [
        t.addmm(dense(t, 4, 3), coo(t), dense(t, 5, 3)),
        t.addmm(dense(t, 4, 3), coo(t), dense(t, 5, 3), beta=0.5, alpha=2),
        t.sparse.addmm(dense(t, 4, 3), coo(t), dense(t, 5, 3), beta=0.5, alpha=2)],
    "products of two": lambda t: [t.sparse.mm(coo(t), coo(t).t()).to_dense(),
                                  t.mm(coo(t).t(), coo(t)).to_dense()],
    "batches of products": lambda t: t.bmm(
        t.stack([coo(t), coo(t) * 2]).coalesce(), dense(t, 2, 5, 3)),
    "masks": lambda t: [dense(t, 4, 5).sparse_mask(coo(t).coalesce()),
                        t.eye(4, 5).to_sparse().sparse_mask(coo(t).coalesce()),
                        dense(t, 4, 5, 2).sparse_mask(hybrid(t).coalesce())],
    "dtypes": lambda t: [coo(t).to(t.float64), coo(t).double(), coo(t).half(), coo(t).int(),
                         coo(t).bool().to_dense(), coo(t).to("cpu"), coo(t).type(t.float64),
                         coo(t).cpu()],
    "copies": lambda t: [coo(t).clone(), coo(t).detach(), copy.deepcopy(coo(t)),
                         t.zeros_like(coo(t)), pickle.loads(pickle.dumps(coo(t))),
                         coo(t).copy_(coo(t) * 2), t.empty_like(coo(t))],
    "norms": lambda t: [coo(t).norm(), t.norm(coo(t)), coo(t).norm(1)],
    "legacy": lambda t: [t.sparse.FloatTensor(t.tensor([[0, 1], [2, 0]]), t.tensor([1.0, 2.0]),
                                              t.Size([2, 3])), t.sparse.FloatTensor(2, 3)],
    "csr": lambda t: [csr(t), csr(t).crow_indices(), csr(t).col_indices(), csr(t).values(),
                      csr(t).to_dense(), csr(t).to_sparse(), csr(t)._nnz(), csr(t).is_sparse_csr,
                      csr(t).is_sparse, str(csr(t).layout)],
    "csr of int32": lambda t: t.sparse_csr_tensor(
        t.tensor([0, 1, 2], dtype=t.int32), t.tensor([1, 0], dtype=t.int32), [1.0, 2.0],
    ).crow_indices(),
    "csr by lists": lambda t: t.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0]),
    "to csr": lambda t: [t.eye(3).to_sparse_csr(), coo(t).to_sparse_csr(),
                         coo(t).to_sparse(layout=t.sparse_csr), csr(t).to_sparse_csr()],
    "csr products": lambda t: [csr(t) @ dense(t, 4, 3), t.mv(csr(t), dense(t, 4)),
                               csr(t) @ dense(t, 4), t.sparse.mm(csr(t), dense(t, 4, 2)),
                               t.addmm(dense(t, 3, 2), csr(t), dense(t, 4, 2)),
                               dense(t, 2, 3) @ csr(t)],
    "csr arithmetic": lambda t: [csr(t) * 2, csr(t) + csr(t), -csr(t), csr(t).abs(), csr(t).sin(),
                                 csr(t).to(t.float64), csr(t).clone(), csr(t).sum(),
                                 dense(t, 3, 4) + csr(t), csr(t) * dense(t, 3, 4)],
    "csr transposed": lambda t: [csr(t).t(), csr(t).t().to_dense(), csr(t).t().ccol_indices(),
                                 csr(t).transpose(0, 1).row_indices()],
    "other layouts": lambda t: [
        dense(t, 4, 6).to_sparse_csc(), dense(t, 4, 6).to_sparse_bsr((2, 3)),
        dense(t, 4, 6).to_sparse_bsc((2, 3)), dense(t, 4, 6).to_sparse_bsr((2, 3)).values(),
        t.eye(4).to_sparse_bsr((2, 2)).to_dense(), t.eye(4).to_sparse_csc().to_dense(),
        t.sparse_csc_tensor([0, 1, 2], [1, 0], [1.0, 2.0]),
        t.sparse_bsr_tensor([0, 1, 2], [1, 0], t.ones(2, 2, 3)).to_dense(),
        t.sparse_compressed_tensor([0, 1, 2], [1, 0], [1.0, 2.0], layout=t.sparse_csr)],
    "sampled": lambda t: t.sparse.sampled_addmm(csr(t), dense(t, 3, 5), dense(t, 5, 4)),
    "diagonals": lambda t: t.sparse.spdiags(dense(t, 2, 4), t.tensor([0, -1]), (4, 4)).to_dense(),
    "texts": lambda t: [repr(coo(t)), repr(hybrid(t)), repr(coo(t).double().coalesce()),
                        repr(coo(t).requires_grad_()), repr(t.sparse_coo_tensor((2, 3))),
                        repr(csr(t)), repr(csr(t).t()), repr(coo(t).long()),
                        str(coo(t).to_sparse_csr().double())],
    "any device": lambda t: t.sparse_coo_tensor([[0]], [1.0], (2,), device="cpu"),
    "layouts": lambda t: [repr(t.sparse_coo), repr(t.sparse_csr), t.strided is t.ones(1).layout,
                          coo(t).layout is t.sparse_coo, isinstance(t.sparse_coo, t.layout),
                          pickle.loads(pickle.dumps(t.sparse_csr)) is t.sparse_csr],
}


def augmented(t):  # type: ignore[no-untyped-def]
    x, y = coo(t), dense(t, 4, 5)
    x += coo(t)
    x *= 2
    y += x
    y -= coo(t)
    return x, y


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    compare(CASES[name])


ERRORS: dict[str, Function] = {
    "indices beyond the size": lambda t: t.sparse_coo_tensor(
        [[5]], [1.0], (3,), check_invariants=True),
    "negative indices": lambda t: t.sparse_coo_tensor([[-1]], [1.0], (3,), check_invariants=True),
    "counts": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
    "a vector of indices": lambda t: t.sparse_coo_tensor(t.tensor([0]), [1.0], (3,)),
    "indices of an uncoalesced tensor": lambda t: coo(t).indices(),
    "values of an uncoalesced tensor": lambda t: coo(t).values(),
    "sparse plus dense": lambda t: coo(t) + dense(t, 4, 5),
    "sparse plus a number": lambda t: coo(t) + 1,
    "sizes of a sum": lambda t: coo(t) + t.eye(2).to_sparse(),
    "numpy": lambda t: coo(t).numpy(),
    "item": lambda t: coo(t).item(),
    "view": lambda t: coo(t).view(-1),
    "reshape": lambda t: coo(t).view(20),
    "exp": lambda t: coo(t).exp(),
    "max": lambda t: coo(t).max(),
    "backward": lambda t: coo(t).requires_grad_().backward(),
    "a batch": lambda t: t.utils.data.default_collate([coo(t), coo(t)]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_as_torchs(name: str) -> None:
    compare_errors(ERRORS[name], 12)


@pytest.mark.parametrize("name", [
    n for n in dir(graphc.Tensor) if n in
    "data_ptr storage untyped_storage tolist unfold cumsum sort masked_fill where amax mean".split()
])
def test_what_is_for_dense_tensors_says_so(name: str) -> None:
    with pytest.raises((NotImplementedError, RuntimeError), match=r"to_dense\(\)"):
        getattr(coo(graphc), name)()


@pytest.mark.parametrize("function", [
    lambda t: t.exp(coo(t)), lambda t: t.nn.functional.relu6(coo(t)),
    lambda t: t.linalg.inv(coo(t)), lambda t: t.maximum(coo(t), coo(t)),
    lambda t: t.nn.functional.softmax(coo(t), 0), lambda t: t.cumsum(coo(t), 0),
])
def test_functions_of_dense_tensors_say_so(function: Function) -> None:
    with pytest.raises((NotImplementedError, AttributeError), match=r"to_dense\(\)"):
        function(graphc)


def test_invariants_are_checked_at_all_times() -> None:
    for make in (
        lambda: graphc.sparse_coo_tensor([[3]], [1.0], (3,)),
        lambda: graphc.sparse_coo_tensor([[-1]], [1.0], (3,)),
        lambda: graphc.sparse_csr_tensor([0, 1], [7], [1.0], (1, 3)),
        lambda: graphc.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 3)),
        lambda: graphc.sparse_csr_tensor([0, 3], [1, 2], [1.0, 2.0], (1, 3)),
        lambda: graphc.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (3,), is_coalesced=True),
    ):
        with pytest.raises(RuntimeError):
            make()


def test_a_method_that_dense_tensors_get_is_refused_until_somebody_writes_it() -> None:
    """Every method of a dense tensor is in a table, or refused: none is tried on entries."""
    from graphc.sparse import methods
    from graphc.sparse.tensor import SparseTensor

    known = set(methods.METHODS) | methods._INHERITED
    for name in dir(graphc.Tensor):
        value = getattr(graphc.Tensor, name)
        if name in known or name.startswith("_") or not callable(value):
            continue
        assert name in vars(SparseTensor), name


def test_dense_tensors_import_none_of_it() -> None:
    import subprocess
    import sys

    code = (
        "import sys, graphc\nx = graphc.ones(2, requires_grad=True)\n(x @ x).backward()\n"
        "graphc.nn.Embedding(3, 2)(graphc.tensor([1])).sum().backward()\n"
        "graphc.optim.SGD([x], 0.1).step()\n"
        "print([m for m in sys.modules if m.startswith('graphc.sparse')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_assert_close() -> None:
    close = graphc.testing.assert_close
    close(coo(graphc), coo(graphc).coalesce())
    close([csr(graphc)], [csr(graphc).clone()])
    for other, what in (
        (coo(graphc) * 2, "not close"), (coo(graphc).to_dense(), "layout"),
        (coo(graphc).to_sparse_csr(), "layout"), (hybrid(graphc), "shape"),
        (coo(graphc) + graphc.eye(4, 5).to_sparse(), "number of specified values"),
    ):
        with pytest.raises(AssertionError, match=what):
            close(coo(graphc), other)
    close(coo(graphc), coo(graphc).to_dense(), check_layout=False)


def test_places_are_nobody_elses() -> None:
    """A pattern is what gradients and flags rely on."""
    places = graphc.tensor([[0, 1]])
    x = graphc.sparse_coo_tensor(places, graphc.ones(2), (3,))
    places[0, 0] = 2
    assert x.to_dense().tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(RuntimeError, match="read-only"):
        x._indices()[0, 0] = 2
    entries = graphc.ones(2)
    x = graphc.sparse_coo_tensor([[0, 1]], entries, (3,))
    entries.mul_(5)  # as torch: entries are the tensor that was given
    assert x.to_dense().tolist() == [5.0, 5.0, 0.0]


def test_compared_with_what_is_no_tensor() -> None:
    x = coo(graphc)
    assert (x == None) is False and x in [x] and {x: 1}[x] == 1  # noqa: E711
    with pytest.raises(NotImplementedError, match=r"'aten::eq'.*to_dense\(\)"):
        x == x  # noqa: B015


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_products_that_are_no_sums() -> None:
    """torch_geometric's mean of neighbours."""
    torch = pytest.importorskip("torch")

    def told(t: Any) -> Any:
        a = t.tensor([[1.0, 0, 2], [0, 0, 0], [-3, 0, -1]])
        b, found = t.arange(6.0).reshape(3, 2) - 2, []
        for how in ("sum", "mean", "amax", "amin"):
            left, right = a.to_sparse_csr().requires_grad_(), b.clone().requires_grad_()
            product = t.sparse.mm(left, right, how)
            product.square().sum().backward()
            found.append([x.tolist() for x in (product, left.grad.to_dense(), right.grad)])
        return found

    assert told(graphc) == told(torch)
    eye = graphc.eye(2)
    with pytest.raises(RuntimeError, match=r"'mean'.*takes a matrix in CSR.*Cure: to_sparse_csr"):
        graphc.sparse.mm(eye.to_sparse(), eye, "mean")
    with pytest.raises(RuntimeError, match="reduce type of prod has not been enabled"):
        graphc.sparse.mm(eye.to_sparse_csr(), eye, "prod")
