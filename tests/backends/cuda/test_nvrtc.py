"""The compiler of CUDA C: what it makes, says and refuses; and cubins that are kept."""

from pathlib import Path

import pytest

from graphc.backends.cuda import libraries, nvrtc
from graphc.backends.cuda.cubins import CubinCache, cubin_key
from graphc.backends.cuda.libraries import RELEASES, Found, MissingLibrary
from graphc.backends.cuda.nvrtc import NvrtcError, Options, Use

from . import needs

PLAIN = 'extern "C" __global__ void add(float* x, float y) { x[threadIdx.x] += y; }\n'
SHARED = """
extern "C" __global__ void turn(float* x) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x];
}
"""
# a table that a thread writes at places known by data alone lies in its stack
STACK = """
extern "C" __global__ void pick(float* x, int* at) {
  float t[64];
  for (int i = 0; i < 64; i++) t[at[i] & 63] = x[i];
  x[at[0]] = t[at[1] & 63];
}
"""
# more values alive than 16 registers hold
SPILLS = """
extern "C" __global__ __launch_bounds__(1024, 2) void wide(float* x) {
  float t[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) t[i] = x[threadIdx.x + 1024 * i];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; i++) x[threadIdx.x + 1024 * i] = t[95 - i] * t[i];
}
"""


@pytest.fixture(params=RELEASES, ids=lambda release: f"CUDA {release}")
def compiler(request: pytest.FixtureRequest) -> nvrtc.Nvrtc:
    return needs.compiler(request.param)


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_a_cubin_and_what_functions_use(compiler: nvrtc.Nvrtc, architecture: str) -> None:
    made = compiler.compile(PLAIN + SHARED + STACK + SPILLS, architecture)
    assert made.cubin[:4] == b"\x7fELF"
    uses = made.uses
    assert sorted(uses) == ["add", "pick", "turn", "wide"]
    assert uses["add"] == Use(uses["add"].registers, 0, 0, 0) and uses["add"].registers > 0
    assert uses["turn"].shared == 1024
    assert uses["pick"].stack >= 256 and uses["pick"].spilled == 0
    assert uses["wide"].registers <= 32 and uses["wide"].spilled > 0


def test_architectures(compiler: nvrtc.Nvrtc) -> None:
    assert {80, 90} <= set(compiler.architectures())
    assert compiler.version[0] == compiler.found.release in RELEASES


def test_contraction_is_asked_for(compiler: nvrtc.Nvrtc) -> None:
    text = 'extern "C" __global__ void k(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    plain = compiler.compile(text, "sm_80").cubin
    fused = compiler.compile(text, "sm_80", Options(contract=True)).cubin
    assert plain != fused
    assert compiler.compile(text, "sm_80").cubin == plain


def test_a_refusal_is_the_log(compiler: nvrtc.Nvrtc) -> None:
    with pytest.raises(NvrtcError, match=r"graphc\.cu\(1\): error: identifier \"unknown\""):
        compiler.compile("__global__ void k() { unknown; }", "sm_80")
    with pytest.raises(NvrtcError, match="invalid value for --gpu-architecture"):
        compiler.compile(PLAIN, "sm_1")


def test_cubins_are_kept(compiler: nvrtc.Nvrtc, tmp_path: Path) -> None:
    first = CubinCache(tmp_path)
    made = first.compile(compiler, PLAIN, "sm_80")
    assert first.compile(compiler, PLAIN, "sm_80") == made
    assert (first.hits, first.misses) == (1, 1)
    second = CubinCache(tmp_path)
    assert second.compile(compiler, PLAIN, "sm_80") == made and made.uses.keys() == {"add"}
    assert (second.hits, second.misses) == (1, 0)
    (path,) = tmp_path.rglob("*.cubin")
    path.write_bytes(path.read_bytes()[:-3])
    third = CubinCache(tmp_path)
    assert third.compile(compiler, PLAIN, "sm_80").cubin == made.cubin and third.misses == 1
    with pytest.raises(NvrtcError):
        third.compile(compiler, "nonsense", "sm_80")
    assert len(list(tmp_path.rglob("*.cubin"))) == 1


def test_the_key_depends_on_everything() -> None:
    flags = Options().flags("sm_80")
    keys = {
        cubin_key((12, 9), PLAIN, flags),
        cubin_key((12, 8), PLAIN, flags),
        cubin_key((12, 9), PLAIN + " ", flags),
        cubin_key((12, 9), PLAIN, Options().flags("sm_90")),
        cubin_key((12, 9), PLAIN, Options(contract=True).flags("sm_80")),
        cubin_key((12, 9), PLAIN, Options(more=("--use_fast_math",)).flags("sm_80")),
        cubin_key((12, 9), flags[-1] + PLAIN, flags[:-1]),
    }
    assert len(keys) == 7


@pytest.mark.parametrize(
    ("there", "driver", "chosen"),
    [
        ((13, 12), (13, 0), 13), ((13, 12), (12, 4), 12), ((12,), (13, 2), 12),
        ((12,), (12, 2), 12),
        ((13,), (12, 8), "cuda12"), ((), (12, 8), "cuda12"), ((), (13, 0), "cuda13"),
        ((), (14, 0), "cuda13"),
    ],
)
def test_the_compiler_fits_the_driver(
    there: tuple[int, ...], driver: tuple[int, int], chosen: int | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver loads what compilers of its release, or older ones, make."""
    found = [Found(libraries.NVRTC, None, "", (release, 1)) for release in there]
    monkeypatch.setattr(libraries, "available", lambda library: found)
    monkeypatch.setattr(nvrtc, "compiler", lambda release: release)
    if isinstance(chosen, int):
        assert nvrtc.compiler_for(driver) == chosen
        return
    with pytest.raises(MissingLibrary, match=rf"pip install 'graphc-compiler\[{chosen}\]'"):
        nvrtc.compiler_for(driver)
