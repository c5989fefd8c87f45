"""State of a Tensor: memory, views, copies, pickles, promotion, modes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from graphc.frontend import grad_mode, promote, random_state
from graphc.frontend.dispatch import apply
from graphc.frontend.numbers import Size
from graphc.frontend.tensor import Parameter, Tensor, from_array
from graphc.frontend.tree import flatten, map_leaves, unflatten
from graphc.ir import dtypes, ops

from .core import add, add_, expand, mul, reshape, row, rows, tensor, transpose, values


def test_shape_strides_and_offset_of_views() -> None:
    x = tensor(np.arange(12).reshape(3, 4))
    assert x.shape == (3, 4) and isinstance(x.shape, Size) and x.shape.numel() == 12
    assert repr(x.shape) == "torch.Size([3, 4])"
    assert x.stride() == (4, 1) and transpose(x).stride() == (1, 4)
    part = rows(x, 1, 3)
    assert part.storage_offset() == 4 and part.data_ptr() == x.data_ptr() + 16
    assert part._is_view() and part._graphc_storage is x._graphc_storage


def test_sizes_are_an_object_of_their_own_each_time() -> None:
    x = tensor(np.zeros((2, 3)))
    assert x.shape is not x.shape  # which copy.deepcopy's memo, by identity, would show
    assert type(x.shape[:1]) is Size and type(x.shape * 2) is Size


def test_views_share_memory_and_versions() -> None:
    x = tensor(np.zeros((2, 3)))
    add_(row(x, 1), 5.0)
    assert values(x) == [[0, 0, 0], [5, 5, 5]]
    assert x._version == 1 == transpose(x)._version


def test_reshape_of_a_transpose_copies() -> None:
    x = tensor(np.arange(6).reshape(2, 3))
    flat = reshape(transpose(x), 6)
    assert values(flat) == [0, 3, 1, 4, 2, 5]
    add_(flat, 1.0)
    assert values(x) == [[0, 1, 2], [3, 4, 5]]


def test_reshape_of_a_strided_view_stays_a_view() -> None:
    x = tensor(np.arange(24).reshape(2, 3, 4))
    part = apply(ops.slice, x, starts=(0, 0, 0), stops=(2, 3, 2), steps=(1, 1, 1))
    wide = reshape(part, 6, 2)
    assert wide._graphc_storage is x._graphc_storage
    add_(wide, 100.0)
    assert values(x)[1][2] == [120, 121, 22, 23]


def test_from_array_shares_numpy_memory() -> None:
    array = np.zeros(3, np.float32)
    t = from_array(array)
    array[1] = 7
    assert values(t) == [0, 7, 0]
    add_(t, 1.0)
    assert array.tolist() == [1, 8, 1]


def test_read_only_memory_and_overlap_refuse_writes() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        add_(from_array(array), 1.0)
    with pytest.raises(RuntimeError, match="single memory location"):
        add_(expand(tensor([1.0]), 4), 1.0)
    base = tensor([[1.0], [2.0]])
    one = row(transpose(expand(base, 2, 3)), 0)  # no two elements share memory
    add_(one, 1.0)
    assert values(base) == [[2.0], [3.0]]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (tensor([1], dtype=np.int64), 2, dtypes.i64),
        (tensor([1], dtype=np.int64), 2.5, dtypes.f32),
        (tensor([1], dtype=np.uint8), tensor([1], dtype=np.int8), dtypes.i16),
        (tensor([1.0]), tensor(1.0, dtype=np.float64), dtypes.f32),
        (tensor(1.0), tensor([1.0], dtype=np.float64), dtypes.f64),
        (tensor([True], dtype=np.bool_), 3, dtypes.i64),
        (tensor([1], dtype=np.uint8), -1, dtypes.u8),
    ],
)
def test_promotion(a: Tensor, b: object, expected: dtypes.DType) -> None:
    assert promote.result_type(a, b) is expected
    assert add(a, b).dtype is expected and add(b, a).dtype is expected


def test_numbers_that_do_not_fit_wrap_or_are_refused() -> None:
    small = tensor([1], dtype=np.uint8)
    assert values(add(small, -1)) == [0]
    assert values(add(small, 300)) == [45]  # as torch does
    with pytest.raises(RuntimeError, match="can't be cast"):
        promote.check_inplace(small, tensor([1.5]))
    assert str(values(mul(tensor([1.0]), -0.0))) == "[-0.0]"


def test_errors_name_the_user_line_and_the_argument() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)size of tensor a \(2\).*core.py"):
        add(tensor([1, 2]), tensor([1, 2, 3]))
    with pytest.raises(TypeError, match="argument 1 must be Tensor, not int"):
        apply(ops.exp, 3)


def test_deepcopy_keeps_sharing_and_attributes() -> None:
    x = tensor(np.arange(4), requires_grad=True)
    x.note = "mine"
    with grad_mode.no_grad():
        part = rows(x, 1, 3)
    part = part.detach()
    y, other = copy.deepcopy([x, part])
    assert y.requires_grad and y.note == "mine" and y is not x
    add_(other, 10.0)
    with grad_mode.no_grad():
        assert values(y) == [0, 11, 12, 3] and values(x) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(mul(x, 2.0))


def test_pickle_keeps_class_strides_and_sharing() -> None:
    p = Parameter(transpose(tensor(np.arange(6).reshape(2, 3))))
    q, view = pickle.loads(pickle.dumps([p, rows(p.detach(), 0, 1)]))
    assert type(q) is Parameter and q.requires_grad and q.stride() == (1, 3)
    add_(view, 1.0)
    assert values(q) == [[1, 4], [1, 4], [2, 5]]


def test_data_has_its_own_version_counter() -> None:
    x = tensor([1.0], requires_grad=True)
    add_(x.data, 1.0)
    assert values(x) == [2.0] and x._version == 0
    x.data = tensor([5.0])
    assert values(x) == [5.0] and x.requires_grad and x.is_leaf


def test_modes_nest_and_decorate() -> None:
    x = tensor([1.0], requires_grad=True)
    with grad_mode.no_grad():
        assert not mul(x, x).requires_grad
        with grad_mode.enable_grad():
            assert mul(x, x).requires_grad

    @grad_mode.no_grad()
    def twice(t: Tensor) -> Tensor:
        return mul(t, 2.0)

    @grad_mode.no_grad
    def thrice(t: Tensor) -> Tensor:
        return mul(t, 3.0)

    @grad_mode.inference_mode()
    def steps() -> object:
        yield grad_mode.is_grad_enabled(), grad_mode.is_inference_mode_enabled()

    assert not twice(x).requires_grad and not thrice(x).requires_grad
    assert list(steps()) == [(False, True)] and grad_mode.is_grad_enabled()
    grad_mode.set_grad_enabled(False)
    assert not grad_mode.is_grad_enabled()
    grad_mode.set_grad_enabled(True)
    with grad_mode.set_grad_enabled(False):
        assert not grad_mode.is_grad_enabled()
    assert grad_mode.is_grad_enabled()


def test_generator_replays_its_stream() -> None:
    random_state.manual_seed(0)
    first = values(random_state.draw("uniform", shape=(3,), dtype=dtypes.f32))
    assert first == pytest.approx([0.49625658988952637, 0.7682217955589294, 0.08847743272781372])
    state = random_state.get_rng_state()
    second = values(random_state.draw("uniform", shape=(3,), dtype=dtypes.f32))
    random_state.set_rng_state(state)
    with random_state.fork_rng():
        assert values(random_state.draw("uniform", shape=(3,), dtype=dtypes.f32)) == second
    assert values(random_state.draw("uniform", shape=(3,), dtype=dtypes.f32)) == second
    random_state.manual_seed(0)
    assert values(random_state.draw("uniform", shape=(3,), dtype=dtypes.f32)) == first


def test_tree_round_trip() -> None:
    value = {"a": [1, (2, None)], "b": {"c": 3}}
    leaves, structure = flatten(value)
    assert leaves == [1, 2, None, 3] and unflatten(leaves, structure) == value
    assert hash(structure) == hash(flatten(copy.deepcopy(value))[1])
    assert map_leaves(lambda x: x, value) == value
    with pytest.raises(ValueError, match="4 leaves, got 1"):
        unflatten([1], structure)
