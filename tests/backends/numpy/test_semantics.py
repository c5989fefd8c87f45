"""What NumPy operators do where hardware and libraries differ, and that views are views."""

import warnings
from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE, prepare, run
from graphc.ir import dtypes
from graphc.ir.dim import DimEnv
from graphc.ir.op import REGISTRY, get
from graphc.ir.types import TensorType, TupleType

INT_MIN = np.iinfo(np.int32).min


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "trunc_divide", "fmod"])
def test_integer_division_by_zero_raises(name: str) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(get(name), [i32(1, 2), i32(1, 0)], {})
    run(get(name), [np.ones(2), np.zeros(2)], {})


def test_the_most_negative_integer_over_minus_one() -> None:
    a, b = i32(INT_MIN), i32(-1)
    assert run(get("floor_divide"), [a, b], {})[0] == INT_MIN
    assert run(get("trunc_divide"), [a, b], {})[0] == INT_MIN
    assert run(get("remainder"), [a, b], {})[0] == 0
    assert run(get("fmod"), [a, b], {})[0] == 0
    assert run(get("neg"), [a], {})[0] == INT_MIN
    assert run(get("abs"), [a], {})[0] == INT_MIN


def test_a_power_of_one_half_is_that_of_c_whatever_the_exponents_shape() -> None:
    x = np.array([-np.inf, -0.0, -1.0, 4.0, np.inf])
    for half in (np.array(0.5), np.array([0.5]), np.full(5, 0.5)):
        with np.errstate(invalid="ignore"):
            found = run(get("pow"), [x, half], {})
        np.testing.assert_array_equal(found, [np.inf, 0.0, np.nan, 2.0, np.inf])
        assert not np.signbit(found[1])


def test_zeta_of_nan() -> None:
    with np.errstate(all="ignore"):
        found = run(get("zeta"), [np.full(2, 2.0), np.array([np.nan, 1.0])], {})
    np.testing.assert_allclose(found, [np.nan, np.pi**2 / 6])


def test_shifts_past_the_width() -> None:
    a, by = i32(-7, 7, -7, 7), i32(32, 100, -1, -1)
    assert run(get("shift_left"), [a, by], {}).tolist() == [0, 0, 0, 0]
    assert run(get("shift_right"), [a, by], {}).tolist() == [-1, 0, -1, 0]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16])
def test_float_to_int_out_of_range(dtype: dtypes.DType) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -2.75, 300.0]).astype(dtype.numpy)
    low = np.iinfo(np.int64).min
    assert run(get("cast"), [x], {"dtype": dtypes.i64}).tolist() == [low, low, low, -2, 300]
    assert run(get("cast"), [x], {"dtype": dtypes.i32}).tolist() == [
        -(2**31), -(2**31), -(2**31), -2, 300]
    assert run(get("cast"), [x], {"dtype": dtypes.u8}).tolist() == [0, 0, 0, 254, 44]
    assert run(get("cast"), [x], {"dtype": dtypes.bool_}).tolist() == [True] * 5


def test_float_to_int_beyond_32_bits() -> None:
    """As torch does on x86: i32 and less through i32, u8 through i64."""
    x = np.array([2.0**32 + 5, -(2.0**31) - 1, 2.0**63, -(2.0**63)])
    assert run(get("cast"), [x], {"dtype": dtypes.i32}).tolist() == [-(2**31)] * 4
    assert run(get("cast"), [x], {"dtype": dtypes.i8}).tolist() == [0] * 4
    assert run(get("cast"), [x], {"dtype": dtypes.u8}).tolist() == [5, 255, 0, 0]


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "error"),
    [
        ("gather", [np.ones(3), np.array([3])], {"dim": 0}, RuntimeError),
        ("gather", [np.ones(3), np.array([-1])], {"dim": 0}, RuntimeError),
        ("scatter", [np.ones(3), np.array([4]), np.ones(1)], {"dim": 0, "reduce": "add"},
         RuntimeError),
        ("index", [np.ones(3), np.array([3])], {"dim": 0}, IndexError),
        ("index", [np.ones((3, 2)), np.array([0]), np.array([-3])], {"dim": 0}, IndexError),
        ("index_put", [np.ones(3), np.ones(1), np.array([-4])], {"dim": 0, "accumulate": True},
         IndexError),
        ("max_pool_grad", [np.ones(2), np.array([0, 9])], {"plane_shape": (4,)}, RuntimeError),
        ("as_strided", [np.ones(4)], {"size": (3,), "stride": (2,), "offset": 0}, RuntimeError),
    ],
)
def test_nothing_outside_an_array_is_touched(
    name: str, arrays: list[Any], attrs: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"out of bounds|outside|reaches"):
        run(get(name), arrays, attrs)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("reshape", {"shape": (3, 2)}), ("permute", {"dims": (1, 0)}),
        ("expand", {"shape": (4, 2, 3)}),
        ("slice", {"starts": (0, 1), "stops": (2, 3), "steps": (1, 2)}),
        ("as_strided", {"size": (2,), "stride": (3,), "offset": 1}),
    ],
)
def test_views_share_memory_and_can_be_written_through(name: str, attrs: dict[str, Any]) -> None:
    x = np.arange(6.0).reshape(2, 3)
    view = run(get(name), [x], attrs)
    assert np.shares_memory(view, x) and view.flags.writeable and get(name).view
    view[...] = 7.0
    assert 7.0 in x


def test_only_views_share_memory() -> None:
    x = np.ones((2, 3))
    same = {"sum": {"dims": (), "keepdim": False}, "flip": {"dims": ()}, "neg": {}, "floor": {},
            "cast": {"dtype": dtypes.f64}, "concat": {"dim": 0},
            "pad": {"low": (0, 0), "high": (0, 0), "interior": (0, 0), "value": 0.0},
            }
    for name, attrs in same.items():
        assert not np.shares_memory(run(get(name), [x], attrs), x), name
    whole = {"starts": (0, 0), "stops": (2, 3), "steps": (1, 1)}
    assert not np.shares_memory(run(get("slice_update"), [x, x], whole), x)


def test_no_warnings_and_no_state_of_numpy_is_changed() -> None:
    before = np.geterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(get("log"), [np.array([-1.0, 0.0])], {})
        run(get("div"), [np.ones(1), np.zeros(1)], {})
        run(get("exp"), [np.array([1e9], np.float32)], {})
        run(get("cast"), [np.array([1e300])], {"dtype": dtypes.f16})
    assert np.geterr() == before


def test_results_are_arrays_even_without_dimensions() -> None:
    x = np.array(2.0, np.float32)
    for name in ("exp", "neg", "sign", "isnan", "floor", "gelu"):
        attrs = {"approximate": "none"} if name == "gelu" else {}
        assert type(run(get(name), [x], attrs)) is np.ndarray
    assert type(run(get("add"), [x, x], {})) is np.ndarray
    assert type(run(get("where"), [np.array(True), x, x], {})) is np.ndarray
    total = run(get("sum"), [np.ones(3)], {"dims": (0,), "keepdim": False})
    assert type(total) is np.ndarray


def test_every_operator_that_computes_is_in_the_table() -> None:
    assert set(REGISTRY) - set(TABLE) == {
        "input", "get", "cond", "while_loop", "unwind", "scan", "fusion"
    }
    assert set(TABLE) <= set(REGISTRY)


def test_half_precision_sums_in_float32() -> None:
    x = np.full(5000, 1.0, np.float16)
    assert run(get("sum"), [x], {"dims": (0,), "keepdim": False}) == 5000


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, dtypes.bf16.numpy])
@pytest.mark.parametrize("size", [1, 3, 64])
def test_relu_and_clamp_keep_the_sign_of_zero(dtype: Any, size: int) -> None:
    """As torch and compiled code do."""
    x, zero = np.full(size, -0.0, dtype), np.zeros((), dtype)
    assert np.signbit(run(get("relu"), [x], {})).all()
    assert np.signbit(run(get("clamp"), [x, zero, zero + 1], {})).all()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("dim", [0, 1])
def test_topk_selects_what_a_stable_sort_has_first(dim: int, k: int, largest: bool) -> None:
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((70, 80)).astype(np.float32)
    equals = np.round(plain)  # ties at the last place
    unknown = plain.copy()
    unknown[rng.random(plain.shape) < 0.1] = np.nan
    zeros = np.where(rng.random(plain.shape) < 0.5, np.float32(-0.0), np.float32(0.0))
    halves = plain.astype(np.float16)
    for x in (plain, equals, unknown, zeros, halves, (plain * 9).astype(np.int64)):
        values, places = run(get("topk"), [x], {"k": k, "dim": dim, "largest": largest})
        _, order = run(get("sort"), [x], {"dim": dim, "descending": largest, "stable": True})
        wanted = np.take(order, range(k), dim)
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, dim))
        assert values.flags.c_contiguous and places.dtype == np.int64


def test_the_third_power_is_a_product() -> None:
    x = np.array([-np.inf, -2.5, -0.0, 0.0, 1e-20, 3.0, 3e38, np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        for power, wanted in ((2.0, x * x), (3.0, x * x * x)):
            found = run(get("pow"), [x, np.array(power, np.float32)], {})
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "u1", "c16"])
def test_large_copies_of_what_lies_across(dtype: str) -> None:
    from graphc.ir.memory import contiguous

    x = (np.arange(1031 * 2057) % 251).reshape(1031, 2057).astype(dtype)
    for turned in (x.T, x.T[::-1], x[:, ::-1].T, x.T[3:, ::2]):
        found = contiguous(turned)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, turned)
        whole = run(get("reshape"), [turned], {"shape": (turned.size,)})
        np.testing.assert_array_equal(whole, turned.ravel())


def test_a_copy_of_what_is_repeated_is_row_major() -> None:
    x = np.broadcast_to(np.arange(6.0).reshape(2, 1, 3), (2, 4, 3))
    found = run(get("cast"), [x], {"dtype": dtypes.f64})
    assert found.flags.c_contiguous and not np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(("a", "b", "batch", "last", "summed"), [
    ((5,), (5,), 0, 0, 0), ((4, 5), (5,), 0, 1, 0), ((2, 3, 5), (5,), 0, 2, 0),
    ((4, 5), (5, 3), 0, 1, 0), ((4, 5), (3, 5), 0, 1, 1), ((5,), (5, 3), 0, 0, 0),
    ((5,), (3, 5), 0, 0, 1), ((2, 4, 5), (5, 3), 0, 2, 0), ((2, 3, 4, 5), (6, 5), 0, 3, 1),
    ((2, 4, 5), (2, 5, 3), 1, 2, 1), ((2, 3, 4, 5), (2, 3, 6, 5), 2, 3, 3),
    ((2, 0, 5), (5, 3), 0, 2, 0), ((4, 0), (0, 3), 0, 1, 0), ((0,), (0,), 0, 0, 0),
    ((5, 4), (5, 3), 0, 0, 0), ((2, 4, 5), (3, 5, 2), 0, 2, 1),
])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_products_of_known_types_have_the_tables_bits(
    a: tuple[int, ...], b: tuple[int, ...], batch: int, last: int, summed: int, dtype: str
) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(a).astype(dtype), rng.standard_normal(b).astype(dtype)
    attrs = {
        "batch_a": tuple(range(batch)), "batch_b": tuple(range(batch)), "contract_a": (last,),
        "contract_b": (summed,),
    }
    op = get("dot_general")
    types = [TensorType(dtypes.from_numpy(v.dtype), v.shape) for v in (x, y)]
    result = op.infer(types, attrs, DimEnv())
    assert isinstance(result, TensorType)
    ready = prepare(op, types, attrs, [result])
    for left in (x, np.asfortranarray(x), np.repeat(x, 2, 0)[::2]):
        for right in (y, np.asfortranarray(y)):
            found, wanted = ready(left, right), TABLE["dot_general"](left, right, **attrs)
            assert type(found) is np.ndarray and found.shape == wanted.shape == result.shape
            assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("masked", ["", "bool", "every bool", "float", "rows"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_known_types_has_the_tables_bits(
    dtype: str, masked: str, causal: bool
) -> None:
    rng = np.random.default_rng(2)
    for lead, rows, keys, width in (
        ((2, 3), 4, 4, 8), ((1,), 5, 70, 3), ((), 7, 2, 1), ((2,), 1, 1, 4)
    ):
        q, k, v = (
            rng.standard_normal((*lead, n, m)).astype(dtype)
            for n, m in ((rows, width), (keys, width), (keys, width + 1))
        )
        q.reshape(-1)[0] = 1e30  # infinite scores among them
        inputs = [q, k, v]
        if masked == "bool":
            inputs.append(rng.random((rows, keys)) > 0.6)  # rows of nothing, too
        elif masked == "every bool":
            inputs.append(rng.random((*lead, rows, keys)) > 0.6)
        elif masked:
            shape = (*lead, rows, keys) if masked == "float" else (rows, keys)
            mask = rng.standard_normal(shape).astype(dtype)
            mask[..., 0, :] = -np.inf
            inputs.append(mask)
        attrs = {"causal": causal, "scale": 0.35}
        op, types = get("attention"), [
            TensorType(dtypes.from_numpy(v.dtype), v.shape) for v in inputs
        ]
        result = op.infer(types, attrs, DimEnv())
        results = result.elements if isinstance(result, TupleType) else (result,)
        ready = prepare(op, types, attrs, results)
        turned = [np.asfortranarray(v) for v in inputs]
        with np.errstate(all="ignore"):
            for given in (inputs, turned):
                for ours, right in zip(
                    ready(*given), TABLE["attention"](*given, **attrs), strict=True
                ):
                    assert ours.shape == right.shape and ours.dtype == right.dtype
                    assert ours.tobytes() == np.ascontiguousarray(right).tobytes()


def test_few_numbers_are_added_one_by_one_as_torch_does() -> None:
    one = np.array([1e8], np.float32)  # whose neighbours are 8 apart
    source, places = np.full(3, 4, np.float32), np.array([0, -1, 0])
    put = TABLE["index_put"]
    np.testing.assert_array_equal(put(one, source, places, dim=0, accumulate=True), one)
    np.testing.assert_array_equal(one, np.float32([1e8]))
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.int64, np.complex64):
        x, rows = rng.integers(-9, 9, (3, 5, 4, 6)).astype(dtype), np.array([[1, -1, 1]])
        columns, source = np.array([[0], [3]]), rng.integers(-9, 9, (3, 2, 3, 6)).astype(dtype)
        wanted = x.copy()
        for i, j in np.ndindex(2, 3):
            wanted[:, rows[0, j], columns[i, 0]] += source[:, i, j]
        found = put(x, source, rows, columns, dim=1, accumulate=True)
        np.testing.assert_array_equal(found, wanted)
        many = np.tile(source, 20)  # added up before
        wide = np.concatenate([x] * 20, -1)
        found = put(wide, many, rows, columns, dim=1, accumulate=True)
        np.testing.assert_array_equal(found, np.concatenate([wanted] * 20, -1))
