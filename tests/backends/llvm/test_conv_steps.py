"""Several steps a trip of the innermost loop: the same bits, where registers have 32 bytes."""

import re

import pytest

from graphc.backends.host import machine as machines
from graphc.backends.llvm.libraries import emit_library
from graphc.backends.llvm.target import Target, make_target
from graphc.ir.kernel import plan_last_lines
from graphc.ir.record import replaced

from .contractions import forget_machines, narrow_targets
from .test_conv_last import Last, check

LINUX = "x86_64-unknown-linux-gnu"
AVX2 = make_target(LINUX, features="+avx2,+fma")
AVX512 = make_target(LINUX, features="+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma")
NEON = make_target("aarch64-unknown-linux-gnu", features="+neon")
LIBRARIES = ("strip_tile.6.2.0.6.f32", "strip_tile_asking.6.2.0.6.f32", "conv_last.6.f32")


def _most_adds(name: str, target: Target) -> int:
    """Multiply-adds of the longest trip in a tile of 6 rows by 2 registers."""
    text = emit_library(name, target).text()
    tiles = [part for part in text.split("define ") if re.match(r".*@graphc_\w+_6x2_", part)]
    blocks = [block for tile in tiles for block in re.split(r"\n\w+:", tile)]
    return max(len(re.findall(r"call <\d+ x float> @llvm\.fma", block)) for block in blocks)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_loop_costs_a_quarter_with_registers_of_32_bytes(name: str) -> None:
    assert _most_adds(name, AVX2) == 4 * 12
    if not name.startswith("conv_last"):  # whose tiles are others
        assert _most_adds(name, AVX512) == _most_adds(name, NEON) == 12


def test_low_tiles_have_short_loops() -> None:
    """Their sums wait for each other."""
    assert _most_adds("strip_tile.6.2.0.6.f32", AVX2) == 48
    text = emit_library("strip_tile.2.2.0.2.f32", AVX2).text()
    assert text.count("call <8 x float> @llvm.fma") == 4


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("waits", [False, True])
def test_bits_are_those_of_single_steps(
    window: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels that are a multiple of a trip's steps, and others; weights in a cache, and not."""
    target = narrow_targets()[0]
    monkeypatch.setattr(plan_last_lines, "seen_by", lambda *_: 0)  # line by line, if at all
    found, channels = [], machines._CHANNELS[32]
    for steps in (4, 1):
        monkeypatch.setitem(machines._CHANNELS, 32, replaced(channels, unrolled=steps))
        forget_machines()
        assert target.machine.tiling.channels.unrolled == steps
        found.append([
            check(Last(
                2, channels + (512 if waits else 0), (6, 14), 40, (window, window), (1, 1),
                (window // 2, window // 2), (1, 1), 2,
            ), target)
            for channels in (1, 2, 3, 4, 5, 8, 11)
        ])
    monkeypatch.undo()
    forget_machines()
    assert found[0] == found[1]
