"""Conversion to Python, copies, autograd's plain methods, in-place through methods."""

import operator

import numpy as np

from tests.parity.records import ALL, NUMBERS, case, integers, positive, real

_PYTHON = "gives Python values"

case("item", lambda t, x: (x[0].item(), x.sum().item(), float(x[1]), int(x[1]), bool(x[0] > 0)),
     real(3), dtypes=ALL, grad=False, segments=_PYTHON)
case("tolist", lambda t, x: (x.tolist(), x[0].tolist(), x[0, 0].tolist()), real(2, 3),
     dtypes=("float32", "int64", "bool", "bfloat16"), grad=False, segments=_PYTHON)
case("numpy", lambda t, x: (str(x.numpy().dtype), x.numpy().sum().item(), np.asarray(x).shape),
     integers(2, 3), grad=False, segments=_PYTHON)
case("type names", lambda t, x: (x.type(), x.type(t.float64), x.type("torch.IntTensor"),
                                 x.type(t.LongTensor), x.type_as(t.zeros(1, dtype=t.int8))),
     real(2), dtypes=NUMBERS, grad=False)
case("to", lambda t, x: (x.to(t.float64), x.to("cpu"), x.to(t.device("cpu"), t.float16),
                         x.to(x), x.to(dtype=t.float64, copy=True), x.cpu(),
                         x.to("cpu", t.float64, True)), real(2, 3))
case("clone detach", lambda t, x: (x.clone(), x.detach(), x.data, x.clone().detach()), real(2, 3))
case("queries", lambda t, x: (x.is_floating_point(), t.is_floating_point(x), t.is_tensor(x),
                              t.is_tensor(1), x.is_cuda, x.device, x.dtype, x.element_size(),
                              x.is_complex(), x.itemsize, x.nbytes, x.is_sparse, x.layout,
                              x.get_device(), x.requires_grad, x.is_leaf), real(2, 3), dtypes=ALL,
     grad=False)
case("contains", lambda t, x: (2 in x, 99 in x), integers(9), grad=False, segments=_PYTHON)
case("format", lambda t, x: (f"{x[0]:.3f}", f"{x.sum():8.2e}"), real(3), grad=False,
     segments=_PYTHON)
case("index by tensor", lambda t, x: (list(range(5))[x[0]], [1, 2, 3][t.tensor(1)]), integers(3),
     grad=False, segments=_PYTHON)
case("isinstance", lambda t, x: (
    isinstance(x, t.FloatTensor), isinstance(x, t.LongTensor), isinstance(x, t.Tensor),
    isinstance(1, t.FloatTensor), repr(t.FloatTensor), t.FloatTensor.dtype), real(2),
    dtypes=NUMBERS, grad=False)
case("numpy calls", lambda t, x: (np.sin(x), np.add(x, x), np.maximum(x, 0.5),
                                  np.sum(x.numpy())), real(3), grad=False,
     segments=_PYTHON)
case("gradient through clone", lambda t, x: (x.clone() * 2).sum(), real(3))
case("out", lambda t, x, y: t.add(x, y, out=t.empty(3)), real(3), real(3), grad=False)
case("out reductions", lambda t, x: (t.sum(x, 0, out=t.empty(4)),
                                     t.max(x, 1, out=(t.empty(3), t.empty(3, dtype=t.int64)))),
     real(3, 4), grad=False)
case("method chain", lambda t, x: x.view(2, 6).t().contiguous().view(-1).relu().mean(), real(3, 4))
case("numpy functions", lambda t, x: x * np.float32(2) + np.array([1.0, 2.0, 3.0], np.float32),
     real(3), grad=False)
case("names of arguments", lambda t, x: (
    t.swapaxes(x, axis0=0, axis1=1), x.swapaxes(axis0=-1, axis1=0), t.adjoint(input=x),
    t.hsplit(x, sections=2), x.hsplit(indices=(1, 2)), t.vsplit(x, indices=[1]),
    t.split_with_sizes(input=x, split_sizes=[1, 2], dim=0),
    x.split_with_sizes(split_sizes=[3, 1], dim=1)), real(3, 4), grad=False)
case("names of arguments of makers", lambda t, x: (
    t.eye(2, layout=t.strided, pin_memory=False), t.arange(3, pin_memory=False),
    t.linspace(0, 1, 3, layout=t.strided, pin_memory=False),
    t.logspace(0, 1, 3, pin_memory=False), t.tril_indices(2, 2, pin_memory=False),
    t.triu_indices(2, 2, pin_memory=False), t.full_like(x, 2.0, pin_memory=False),
    t.rand_like(x, pin_memory=False).shape, t.is_signed(input=x)), real(3), grad=False)
case("names of arguments of matrices", lambda t, x: (
    t.det(input=x @ x.mT), t.inverse(input=x @ x.mT), t.slogdet(input=x @ x.mT),
    t.pinverse(input=x, rcond=1e-6), t.matrix_exp(input=x @ x.mT),
    t.cholesky_inverse(input=t.linalg.cholesky(x @ x.mT), upper=False),
    t.cholesky_solve(input=t.ones(2, 1, dtype=x.dtype), input2=t.linalg.cholesky(x @ x.mT))),
    real(2, 5), dtypes=("float64",), grad=False)
case("operators with arrays", lambda t, x: [
    op(x, (np.ones(size) * 2).astype(kind))
    for op in (operator.add, operator.mul, operator.truediv, operator.pow, operator.floordiv)
    for kind in ("float32", "float64", "int64", "int16", "float16") for size in (3, ())
], positive(3), dtypes=NUMBERS, grad=False)
case("functions of NumPy on no dimensions", lambda t, x: (
    np.sin(x[0]), np.add(x[0], 2), np.isnan(x), np.isnan(x[0])), real(3), grad=False,
    segments=_PYTHON)
