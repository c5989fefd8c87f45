"""Creation."""

import numpy as np

from tests.parity.records import ALL, case, fixed, integers, real

case("zeros ones", lambda t: (t.zeros(2, 3), t.ones((2,)), t.zeros([2, 1], dtype=t.int64),
                              t.ones(2, dtype=t.bool), t.zeros(()), t.ones(size=(2,)),
                              t.zeros(2, dtype=t.float64), t.empty(0)), grad=False)
case("full", lambda t: (t.full((2, 3), 1.5), t.full((2,), 3), t.full((2,), True),
                        t.full((), 2.0, dtype=t.float64), t.full((2,), 2, dtype=t.float32),
                        t.full((1,), float("inf"))), grad=False)
case("likes", lambda t, x: (t.zeros_like(x), t.ones_like(x), t.full_like(x, 2),
                            t.zeros_like(x, dtype=t.int32), x.new_zeros(2, 2), x.new_ones((3,)),
                            x.new_full((2,), 1), x.new_tensor([1, 2]),
                            x.new_zeros(2, dtype=t.int64)),
     real(2, 3), dtypes=ALL, grad=False)
case("arange", lambda t: (t.arange(5), t.arange(2, 5), t.arange(1, 10, 3), t.arange(5.0),
                          t.arange(0, 1, 0.25), t.arange(5, dtype=t.float32), t.arange(5, 0, -2),
                          t.arange(0), t.arange(1, 2.5), t.arange(0.1, 1, 0.3), t.arange(-3, 3),
                          t.arange(start=1, end=4), t.arange(end=3),
                          t.arange(end=3, dtype=t.float64)), grad=False)
case("linspace", lambda t: (t.linspace(0, 1, 5), t.linspace(-1, 1, steps=7), t.linspace(3, 3, 1),
                            t.linspace(0, 10, 4, dtype=t.float64), t.linspace(1, -1, 6),
                            t.linspace(0, 1, 100)), grad=False)
case("logspace", lambda t: (t.logspace(0, 2, 5), t.logspace(-1, 1, 4, base=2)), grad=False)
case("eye", lambda t: (t.eye(3), t.eye(2, 4), t.eye(3, dtype=t.int64)), grad=False)
case("tensor", lambda t: (t.tensor(3), t.tensor(1.5), t.tensor(True), t.tensor([1, 2]),
                          t.tensor([1, 2.5]), t.tensor([[1, 2], [3, 4]]), t.tensor([]),
                          t.tensor([True, False]), t.tensor([1, 2], dtype=t.float32),
                          t.tensor([1.7, -2.7], dtype=t.int64), t.tensor((1, 2)),
                          t.tensor([[], []]),
                          t.tensor(np.array([1, 2], np.int32)), t.tensor(np.float64(2.5)),
                          t.tensor(np.array([1.0, 2.0])), t.tensor(range(3)), t.tensor(1e300),
                          t.tensor([True, 2, 3.0])), grad=False)
case("tensor of tensors", lambda t, x: (t.tensor([x[0].item(), 2.0]), t.as_tensor(x),
                                        t.tensor([x[0], x[1]])), real(3), grad=False,
     segments="item()")
case("constructors", lambda t: (t.Tensor([1, 2]), t.FloatTensor([1, 2]), t.LongTensor([1, 2]),
                                t.Tensor(2, 3).shape, t.Tensor(size=(2, 3)).shape,
                                t.LongTensor(size=(2,)).shape, t.BoolTensor([1, 0]),
                                t.IntTensor([[1], [2]]),
                                t.DoubleTensor([1]), t.ByteTensor([1]), t.Tensor().shape),
     grad=False)
case("triangles", lambda t: (t.tril_indices(3, 4), t.triu_indices(3, 3, 1)), grad=False)
case("from_numpy", lambda t: (t.from_numpy(np.arange(6).reshape(2, 3).T),
                              t.as_tensor(np.float32(1.5)), t.asarray([1, 2])), grad=False)
case("dtypes", lambda t, x: (x.to(t.int32), x.double(), x.long(), x.bool(), x.half(), x.bfloat16(),
                             x.int(), x.short(), x.char(), x.float()),
     real(2, 3), dtypes=ALL, grad=False)
case("float to int", lambda t, x: (x.to(t.int64), x.to(t.int32)),
     fixed([1.7, -1.7, 0.0, 100.9, -0.5]), grad=False)
case("int to narrow", lambda t, x: (x.to(t.uint8), x.to(t.int8), x.to(t.bool), x.to(t.float16)),
     integers(9, low=-300, high=300), grad=False)
case("finfo", lambda t: [
    (i.bits, i.eps, i.max, i.min, i.tiny, i.dtype, i.resolution)
    for i in (t.finfo(t.float32), t.finfo(t.float64), t.finfo(t.float16), t.finfo(t.bfloat16))
] + [repr(t.finfo(t.float32)), repr(t.iinfo(t.int32)), t.iinfo(t.uint8).max, t.finfo().bits],
     grad=False)
_DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
case("promotion table", lambda t: [
    t.promote_types(getattr(t, a), getattr(t, b)) for a in _DTYPES for b in _DTYPES
], grad=False)
case("result_type", lambda t: (
    t.result_type(t.zeros(2, dtype=t.int32), 1.5), t.result_type(t.tensor(1), t.zeros(1)),
    t.result_type(t.zeros(2, dtype=t.uint8), -1), t.can_cast(t.float32, t.int32),
    t.can_cast(t.int32, t.float32)), grad=False)
