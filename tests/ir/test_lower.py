"""Kernels: which loops they have, and that they compute what their bodies mean."""

from collections.abc import Iterator

import pytest

from graphc.backends.host.machine import CPU
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim, recombined
from graphc.ir.kernel import Check, Kernel, Launch, Load, Local, Loop, Stmt
from graphc.ir.kernel.text import print_kernel
from graphc.ir.kernel.walk import bodies, evaluated
from graphc.ir.machine import Machine
from graphc.ir.passes.lower.nest import cost

from . import kernel_cases as cases
from .kernel_cases import build, check, compiled, i64, only_kernel, total
from .machines import CUTTING, TINY, WIDE
from .random_graphs import random_graph


def statements(kernel: Kernel) -> Iterator[Stmt]:
    stack = [s for stage in kernel.stages for s in stage]
    while stack:
        stmt = stack.pop()
        yield stmt
        if isinstance(stmt, Loop):
            stack.extend(stmt.body)


def loops(kernel: Kernel) -> list[str]:
    return [s.kind for s in statements(kernel) if isinstance(s, Loop)]


def test_pointwise_kernels_do_not_depend_on_the_length() -> None:
    def function(x, y):
        return ops.relu(x * 2.0 + y)

    texts = {
        print_kernel(only_kernel(function, shape, shape)) for shape in [(7,), (300, 40), (2, 3, 4)]
    }
    assert len(texts) == 1
    assert only_kernel(function, (300, 40), (300, 40)).dims == ("n",)


def test_small_work_has_no_parallel_loop() -> None:
    assert "parallel" not in loops(only_kernel(lambda x, b: x + b, (8, 40), (40,)))
    assert "parallel" in loops(only_kernel(lambda x, b: x + b, (800, 40), (40,)))


def test_channels_are_walked_plane_by_plane() -> None:
    kernel = only_kernel(
        lambda x, b: ops.relu(x + ops.reshape(b, shape=(1, 6, 1, 1))), (8, 6, 14, 14), (6,)
    )
    assert "vector v in [196]" in print_kernel(kernel)


def test_the_vector_runs_along_contiguous_memory() -> None:
    rows = print_kernel(only_kernel(lambda x: total(x, (1,)), (64, 256)))
    assert "vector v in [256] carry" in rows
    columns = print_kernel(only_kernel(lambda x: total(x, (0,)), (48, 256)))
    assert "vector v in [64] {" in columns and "serial r0 in [48] carry" in columns


def test_sums_of_short_planes_keep_lanes_apart_until_the_end() -> None:
    text = print_kernel(only_kernel(lambda x: total(x, (0, 2, 3)), (16, 64, 4, 4)))
    assert text.index("vector v in [16] carry") < text.index("serial r0 in [16] carry")


def test_costly_values_of_a_row_are_kept_in_a_tile() -> None:
    kernel = only_kernel(lambda x: cases.softmax(x, 1), (30, 40))
    assert [s.size for s in statements(kernel) if isinstance(s, Local)] == [40]
    long = only_kernel(lambda x: cases.softmax(x, 1), (3, 20_000))
    assert not any(isinstance(s, Local) for s in statements(long))


def test_big_sums_have_two_stages_cut_by_shape() -> None:
    kernel = only_kernel(lambda x: total(x, (0,)), (100_000,))
    assert len(kernel.stages) == 2
    assert [p.size for p in kernel.params if p.access == "scratch"] == [13]


def test_half_precision_is_rounded_after_every_operator() -> None:
    kernel = only_kernel(lambda x, y: ops.exp(x) * y, *[(dtypes.bf16, (14, 8))] * 2)
    assert print_kernel(kernel).count("cast.bf16") == 2
    for dtype in (dtypes.bf16, dtypes.f16):
        check(build(lambda x: cases.softmax(x, 1), (dtype, (6, 10))))


def test_checked_indices() -> None:
    kernel = only_kernel(lambda x, i: ops.index(x, i, dim=0), (7, 8), (i64, (4,)))
    (message,) = [s.message for s in statements(kernel) if isinstance(s, Check)]
    assert message == "IndexError: index {value} is out of bounds for dimension 0 with size 7"
    divided = only_kernel(lambda x, y: ops.remainder(x, y + 5), *[(i64, (4,))] * 2)
    (message,) = [s.message for s in statements(divided) if isinstance(s, Check)]
    assert message == "RuntimeError: ZeroDivisionError"


MOVES = {
    "pad": lambda x: ops.pad(x * 2.0, low=(1, 2), high=(0, 1), interior=(1, 0), value=3.0),
    "flip": lambda x: ops.flip(ops.exp(x), dims=(1,)) + x,
    "slice": lambda x: ops.slice(x, starts=(1, 0), stops=(6, 8), steps=(2, 3)) * 2.0,
    "concat": lambda x: ops.concat(x, x * 2.0, dim=1) + 1.0,
    "update": lambda x: ops.slice_update(
        x, ops.slice(x, starts=(0, 0), stops=(2, 3), steps=(1, 1)),
        starts=(1, 1), stops=(5, 4), steps=(2, 1),
    ),
    "strided": lambda x: ops.as_strided(x, size=(3, 4), stride=(8, 2), offset=1) * 2.0,
    "reshape": lambda x: ops.reshape(x, shape=(8, 6)) + ops.reshape(x, shape=(8, 6)),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(name: str) -> None:
    check(build(MOVES[name], (6, 8)))


WINDOW = {"window": (3, 3), "stride": (2, 2), "pad_low": (1, 1), "pad_high": (1, 1),
          "dilation": (1, 1)}
LAST = {"window": (4, 3, 1), "stride": (1, 2, 1), "pad_low": (2, 1, 0), "pad_high": (1, 1, 0),
        "dilation": (1, 2, 1)}
BETWEEN = {"window": (2, 2, 1), "stride": (1, 1, 1), "pad_low": (1, 1, 0), "pad_high": (1, 1, 0),
           "dilation": (2, 1, 1)}
CONV = {"stride": (2, 1), "pad_low": (1, 1), "pad_high": (1, 0), "dilation": (1, 2), "groups": 2}
COLLECTIVE = {
    "max_pool": (lambda x: ops.max_pool(x, **WINDOW), [(2, 3, 9, 9)]),
    "window_sum": (lambda x: ops.window_sum(x, **WINDOW), [(2, 3, 9, 9)]),
    "max_pool of channels last": (lambda x: ops.max_pool(x, **LAST), [(2, 9, 6, 5)]),
    "window_sum of channels last": (lambda x: ops.window_sum(x, **LAST), [(2, 9, 6, 5)]),
    "max_pool on both sides of": (lambda x: ops.max_pool(x, **BETWEEN)[0], [(2, 1, 5, 4)]),
    "max_pool_grad": (
        lambda g, i: ops.max_pool_grad(g, i, plane_shape=(6, 6)),
        [(2, 3, 3, 3), (i64, (2, 3, 3, 3))],
    ),
    "index_put": (
        lambda x, g, i: ops.index_put(x, g, i, dim=0, accumulate=True),
        [(7, 10), (20, 10), (i64, (20,))],
    ),
    "scatter": (
        lambda x, i, g: ops.scatter(x, i, g, dim=1, reduce="amax"),
        [(7, 10, 8), (i64, (5, 3, 8)), (5, 3, 8)],
    ),
    "cumsum": (lambda x: ops.cumsum(x, dim=0), [(7, 10)]),
    "cummax": (lambda x: ops.cummax(x, dim=1), [(7, 10)]),
    "argmin": (lambda x: ops.argmin(x, dim=1, keepdim=False), [(7, 10)]),
    "conv": (lambda x, w: ops.relu(ops.conv(x, w, **CONV)), [(2, 4, 7, 8), (6, 2, 3, 3)]),
    "conv_input_grad": (
        lambda g, w: ops.conv_input_grad(g, w, input_shape=(2, 4, 7, 8), **CONV),
        [(2, 6, 4, 5), (6, 2, 3, 3)],
    ),
    "conv_weight_grad": (
        lambda x, g: ops.conv_weight_grad(x, g, weight_shape=(6, 2, 3, 3), **CONV),
        [(2, 4, 7, 8), (2, 6, 4, 5)],
    ),
}


@pytest.mark.parametrize("name", COLLECTIVE)
def test_collective_operators(name: str) -> None:
    function, inputs = COLLECTIVE[name]
    only_kernel(function, *inputs)


@pytest.mark.parametrize(("shape", "window", "shared"), [
    ((16, 9, 300), (3, 3), [16]), ((1, 40, 40, 24), (3, 3, 1), [38]),
    ((2, 3, 41, 200), (1, 5, 3), [2 * 3 * 37]), ((1, 9000), (9,), []),
])
def test_planes_are_shared_and_where_they_are_few_their_rows(
    shape: tuple[int, ...], window: tuple[int, ...], shared: list[int]
) -> None:
    """With the channels last a batch of one image is one plane; what is one row, nobody shares."""
    each = {key: (1,) * len(window) for key in ("stride", "dilation")}
    none = {key: (0,) * len(window) for key in ("pad_low", "pad_high")}
    kernel = only_kernel(lambda x: ops.window_sum(x, window=window, **each, **none), shape)
    found = [s.extent for s in statements(kernel) if isinstance(s, Loop) and s.kind == "parallel"]
    assert found == shared


@pytest.mark.parametrize(("shape", "window", "masked"), [
    ((2, 9, 9, 8), (3, 3, 1), False), ((2, 3, 9, 9), (3, 3), True), ((4, 9, 8), (3, 1), False),
])
def test_windows_go_over_what_is_inside(
    shape: tuple[int, ...], window: tuple[int, ...], masked: bool
) -> None:
    """Where all lanes have the same taps, no tap is asked whether it is."""
    ones = (1,) * len(window)
    pads = tuple(size // 2 for size in window)
    kernel = only_kernel(
        lambda x: ops.window_sum(
            x, window=window, stride=ones, dilation=ones, pad_low=pads, pad_high=pads
        ), shape,
    )
    loads = [s for body in bodies(kernel) for _, s in evaluated(body) if isinstance(s, Load)]
    assert [load.mask is not None for load in loads] == [masked]


@pytest.mark.parametrize("machine", [TINY, WIDE, CUTTING], ids=["tiny", "wide", "cutting"])
@pytest.mark.parametrize("name", COLLECTIVE)
def test_collective_operators_on_another_machine(name: str, machine: Machine) -> None:
    function, inputs = COLLECTIVE[name]
    only_kernel(function, *inputs, machine=machine)


@pytest.mark.parametrize("machine", [TINY, WIDE, CUTTING], ids=["tiny", "wide", "cutting"])
@pytest.mark.parametrize("seed", range(200, 225))
def test_random_graphs_on_another_machine(seed: int, machine: Machine) -> None:
    maker = random_graph(seed, 18, symbolic=seed % 3 == 0)
    check(maker.graph(), maker.mutated, maker.arrays(seed), machine)


def test_a_machine_without_serial_work_shares_everything() -> None:
    def function(x, b):
        return x + b

    assert "parallel" not in loops(only_kernel(function, (8, 40), (40,)))
    assert "parallel" in loops(only_kernel(function, (8, 40), (40,), machine=WIDE))
    cpu, wide = (
        print_kernel(only_kernel(lambda x: total(x, (0,)), (24, 256), machine=m))
        for m in (CPU, WIDE)
    )
    assert "in [64] {" in cpu and "in [256] {" in wide


def test_kernels_of_two_machines_are_kept_apart() -> None:
    graph = build(lambda x: ops.exp(x) * 2.0, (300, 40))
    for machine in (CPU, WIDE, CPU):
        (step,) = compiled(graph, machine=machine).steps
        assert isinstance(step, Launch)
        chunk = machine.chunk(1 << 20, cost(graph.nodes[1]) + 1)
        assert f"{1 << (chunk.bit_length() - 1)}" in print_kernel(step.kernel)


def test_a_size_as_a_value() -> None:
    def mean(x):
        size = ops.full.like(x, shape=(), value=x.shape[0], dtype=dtypes.f32)
        return x / size

    program = check(build(mean, (Dim.var("s0"),), dims={"s0": 12}))
    assert [k.dims for k in cases.kernels(program)] == [("d0",)]


def test_one_kernel_for_all_symbolic_sizes() -> None:
    def function(x, b):
        return ops.relu(x + b), total(x, (0,))

    graph = build(function, (Dim.var("s0"), 40), (40,), dims={"s0": 12})
    program = check(graph)
    assert program.dims == ("s0",)
    assert all(k.dims in (("n",), ("d0",)) for k in cases.kernels(program))


def test_a_relative_shift_of_a_product() -> None:
    """The product's batch dims are swapped, and its rows cut at another width."""

    def shifted(a, b):
        heads = ops.dot_general(
            a, b, batch_a=(1,), batch_b=(1,), contract_a=(3,), contract_b=(2,)
        )
        rows = ops.reshape(ops.permute(heads, dims=(1, 0, 2, 3)), shape=(2, 2, 9, 5))
        return ops.slice(rows, starts=(0, 0, 1, 0), stops=(2, 2, 9, 5), steps=(1, 1, 1, 1)) * 2.0

    check(build(shifted, (2, 2, 5, 8), (9, 2, 8)))


def test_digits_of_a_number_are_put_together() -> None:
    m, n = Dim.var("m"), Dim.var("n")
    assert recombined(9 * (m % 5) + 45 * (m // 5) + n) == 9 * m + n
    assert recombined(9 * (m % 5) + 44 * (m // 5)) != 9 * m
