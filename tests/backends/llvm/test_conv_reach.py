"""What a convolution comes to is what it is linked with: the driver's loops, in Python."""

import random
from typing import Any

import pytest

from graphc.backends.llvm.contraction import tile_of
from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.backends.llvm.libraries import emit_library, is_apart, template_libraries
from graphc.backends.llvm.target import Target, host_target
from graphc.ir.dim import Dim
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.plan_convolution import contractions
from graphc.ir.record import replaced

from .contractions import Conv, narrow_targets
from .test_gemm_reach import walked

KINDS = ("conv", "conv_input_grad", "conv_weight_grad")


def random_conv(rng: random.Random) -> Conv:
    """Small images and large ones, of few channels and of many."""
    groups, rank = rng.choice((1, 1, 1, 2)), rng.choice((1, 2, 2, 2, 3))

    def each(*choices: int) -> tuple[int, ...]:
        return tuple(rng.choice(choices) for _ in range(rank))

    return Conv(
        rng.choice((0, 1, 2, 7, 32)), groups * rng.randint(1, 20), each(5, 8, 14, 28),
        groups * rng.randint(1, 20), each(1, 2, 3, 5), each(1, 1, 1, 2), each(0, 1, 2), each(1),
        groups,
    )


def template_of(case: Conv, kind: str) -> Convolution:
    template = case.kernel(kind).template
    assert isinstance(template, Convolution)
    return template


@pytest.mark.parametrize("target", [host_target(), *narrow_targets()], ids=lambda t: t.cpu)
def test_nothing_is_called_that_is_not_linked(target: Target) -> None:
    rng, seen = random.Random(0), set[Any]()
    for _ in range(60):
        case = random_conv(rng)
        for kind in KINDS:
            c = template_of(case, kind)
            tile, names = tile_of(c, target), template_libraries(case.kernel(kind), target)
            found, reached = contractions(c, tile.machine), conv_reach(c, tile)
            assert found is not None
            called = {each: set[tuple[int, int]]() for each in ("tiles", "windows", "places")}
            dots: set[int] = set()
            if is_by_strips(c, tile):
                linked = {name for name in names if not name.startswith("strip_tile.")}
                assert linked == {"conv_strips.f32", "transpose.f32", "store.f32"}
                continue
            for each in found:
                kernels, runs, _ = walked(each.m, each.n, tile, each.plan)
                assert not runs
                if each.kind == "dots":
                    dots |= {rows for rows, _ in kernels}
                else:
                    alike = {"pieces": "tiles", "shifts": "windows"}
                    called[alike.get(each.kind, each.kind)] |= kernels
                assert reached.left or not each.plan.left_packed
            assert called["tiles"] <= set(reached.tiles), (case, kind, called, reached)
            assert called["windows"] <= set(reached.windows), (case, kind, called, reached)
            assert called["places"] <= set(reached.places), (case, kind, called, reached)
            assert dots <= set(reached.dots), (case, kind, dots, reached)
            if case.batch:  # and nothing is linked that is not called
                assert called["tiles"] >= set(reached.tiles), (case, kind, called, reached)
                assert called["windows"] >= set(reached.windows), (case, kind, called, reached)
                assert called["places"] >= set(reached.places), (case, kind, called, reached)
            assert reached.packs == any(name.startswith(("conv_rows", "conv_columns"))
                                        for name in names)
            assert reached.copies == any(name.startswith("conv_pad") for name in names)
            assert bool(reached.places) == any(name.startswith("conv_places") for name in names)
            assert reached.shifts == any(name.startswith("conv_shifts") for name in names)
            seen |= {(kind, each.kind) for each in found}
    assert seen - {("conv", "places"), ("conv", "shifts")} == {
        ("conv", "tiles"), ("conv", "windows"), ("conv_input_grad", "tiles"),
        ("conv_input_grad", "windows"), ("conv_weight_grad", "tiles"), ("conv_weight_grad", "dots"),
        ("conv", "pieces"), ("conv_input_grad", "pieces"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_the_call_come_to_all_widths_and_ways(kind: str) -> None:
    c = template_of(Conv(2, 8, (9, 9), 12, (3, 3)), kind)
    c = replaced(c, geometry=replaced(c.geometry, batch=Dim.var("n0")))
    tile = tile_of(c, host_target())
    found = conv_reach(c, tile)
    rows = (6, 2) if kind == "conv_input_grad" else (6,)  # of 8 and of 12 channels
    every = {(each, width) for each in rows for width in tile.widths}
    assert found.copies and found.packs and found.left
    assert set(found.tiles) == every
    dots = kind == "conv_weight_grad"
    assert (set(found.windows), found.dots) == ((set(), rows) if dots else (every, ()))


@pytest.mark.parametrize(("stride", "step"), [((1, 1), 1), ((2, 1), 1), ((1, 2), 2), ((3, 4), 0)])
def test_the_copy_has_code_for_the_step_along_lines_alone(
    stride: tuple[int, int], step: int
) -> None:
    """To compile it for every step takes three times as long. A gradient's copy has none."""
    case = Conv(2, 3, (40, 43), 8, (7, 7), stride, (3, 3))
    for kind in KINDS:
        names = template_libraries(case.kernel(kind), narrow_targets()[0])
        copies = [name.split(".")[2] for name in names if name.startswith("conv_pad")]
        assert copies in ([], ["1" if kind == "conv_input_grad" else str(step)])
        assert copies or kind != "conv_weight_grad"


def test_a_convolution_of_few_channels_is_linked_with_little() -> None:
    """Six rows: of what all convolutions together come to, a small part."""
    target = host_target()
    case = Conv(2, 6, (16, 16), 6, (3, 3))
    one, all_ = (
        sum(len(emit_library(name, target).text()) for name in names)
        for names in (
            template_libraries(case.kernel("conv"), target),
            dict.fromkeys(
                name for kind in KINDS for channels in (1, 2, 4, 12) for size in (3, 16)
                for name in template_libraries(
                    Conv(2, channels, (size, size), channels, (3, 3)).kernel(kind), target
                )
            ),
        )
    )
    assert one < all_ / 2


@pytest.mark.parametrize("kind", ["input_grad", "lines", "places", "shifts", "strips", "windows"])
def test_a_driver_is_compiled_apart_from_what_runs_in_chunks(kind: str) -> None:
    name, target = f"conv_{kind}.f32", host_target()
    assert is_apart(name)
    for text, plain in zip(emit_library(name, target).apart(name), (False, True), strict=True):
        heads = [line for line in text.split("\n") if line.startswith("define")]
        assert heads and all(("optnone" in head) is plain for head in heads)
