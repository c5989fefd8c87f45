"""What ctypes is told of CUDA's C, held against the headers of each release by a C compiler."""

import ctypes
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from graphc.backends.cuda import cublaslt, errors, libcuda, nvrtc
from graphc.backends.cuda.driver import Attribute
from graphc.backends.cuda.libraries import RELEASES
from graphc.backends.cuda.prototypes import TYPES, Prototype, bind, parse
from graphc.backends.cuda.structures import CONSTANTS, STRUCTURES

from . import needs


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"CUDA {release}")
def headers(request: pytest.FixtureRequest) -> Path:
    return needs.headers(request.param)


def pointers(prototypes: Mapping[str, Prototype], types: Mapping[str, object]) -> Iterator[str]:
    """C that compiles where the prototypes, and the sizes of types, are the header's."""
    for prototype in prototypes.values():
        parameters = ", ".join(prototype.parameters) or "void"
        yield f"{prototype.result} (*p_{prototype.name})({parameters}) = {prototype.name};"
    for name, ctype in {**TYPES, **types}.items():
        if ctype is not None:
            yield f"_Static_assert(sizeof({name}) == {ctypes.sizeof(ctype)}, {name!r});".replace(
                "'", '"'
            )


def compile_only(folder: Path, lines: list[str], *headers: Path) -> None:
    source = folder / "check.c"
    source.write_text("\n".join(lines) + "\n")
    needs.compile_c(source, folder / "check.o", "-c", *(f"-I{each}" for each in headers))


def test_driver_prototypes(headers: Path, tmp_path: Path) -> None:
    files, asked = ["cuda.h"], dict(libcuda.PROTOTYPES)
    if (headers / "cudaProfiler.h").is_file():  # a wheel has it apart
        files.append("cudaProfiler.h")
    else:
        asked = {name: each for name, each in asked.items() if "Profiler" not in name}
    lines = [*(f"#include <{file}>" for file in files), *pointers(asked, libcuda.TYPES)]
    compile_only(tmp_path, lines, headers)


@pytest.mark.parametrize("release", RELEASES)
def test_nvrtc_prototypes(release: int, tmp_path: Path) -> None:
    folders = needs.library_headers(release, "nvrtc.h", "cuda_nvrtc")
    lines = ["#include <nvrtc.h>", *pointers(nvrtc.PROTOTYPES, nvrtc.TYPES)]
    compile_only(tmp_path, lines, *folders)


# cublas_api.h includes what is in the compiler's wheels, and of no use here.
_BARE = ("#define __CUDA_FP16_H__", "#define __CUDA_BF16_H__")
_COMPILERS = """
#define __host__
#define __device__
#define __device_builtin__
#define __cudart_builtin__
#define CUDARTAPI
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
"""


def stub(folder: Path) -> Path:
    """Where crt/host_defines.h is, should it be nowhere else."""
    (folder / "crt").mkdir()
    (folder / "crt" / "host_defines.h").write_text(_COMPILERS)
    return folder


@pytest.mark.parametrize("release", RELEASES)
def test_cublaslt(release: int, tmp_path: Path) -> None:
    """Prototypes, numbers, and where fields lie."""
    lines = ["#include <cublasLt.h>", *pointers(cublaslt.PROTOTYPES, cublaslt.TYPES)]
    for name, value in cublaslt.CONSTANTS.items():
        lines.append(f'_Static_assert({name} == {value}, "{name}");')
    for kind, c_name in (
        (cublaslt.Algorithm, "cublasLtMatmulAlgo_t"),
        (cublaslt.Heuristic, "cublasLtMatmulHeuristicResult_t"),
    ):
        lines.append(f'_Static_assert(sizeof({c_name}) == {ctypes.sizeof(kind)}, "{c_name}");')
        for field, _ in kind._fields_:
            at = getattr(kind, field).offset
            lines.append(f'_Static_assert(offsetof({c_name}, {field}) == {at}, "{field}");')
    folders = needs.library_headers(release, "cublasLt.h", "cublas")
    compile_only(tmp_path, [*_BARE, *lines], *folders, stub(tmp_path))


def test_a_wrong_prototype_is_noticed(headers: Path, tmp_path: Path) -> None:
    wrong = parse("CUresult cuMemAlloc_v2(CUdeviceptr *, unsigned int)")
    with pytest.raises(AssertionError, match="cuMemAlloc"):
        compile_only(tmp_path, ["#include <cuda.h>", *pointers(wrong, {})], headers)


def test_structures_and_constants(headers: Path, tmp_path: Path) -> None:
    """A C program prints sizes, offsets and numbers."""
    names = [*CONSTANTS, *(f"CU_DEVICE_ATTRIBUTE_{attribute.name}" for attribute in Attribute)]
    parts = [
        (f"{kind.__name__}.{field}", f"offsetof({kind.__name__}, {field})",
         getattr(kind, field).offset)
        for kind in STRUCTURES for field, _ in kind._fields_
    ]
    parts += [(k.__name__, f"sizeof({k.__name__})", ctypes.sizeof(k)) for k in STRUCTURES]
    numbers = [*CONSTANTS.values(), *map(int, Attribute)]
    parts += [(name, name, number) for name, number in zip(names, numbers, strict=True)]
    prints = [f'  printf("{name} %lld\\n", (long long){code});' for name, code, _ in parts]
    source = tmp_path / "layout.c"
    source.write_text("\n".join((
        "#include <cuda.h>", "#include <stddef.h>", "#include <stdio.h>",
        "int main(void) {", *prints, "  return 0;", "}\n",
    )))
    needs.compile_c(source, tmp_path / "layout", f"-I{headers}")
    printed = subprocess.run(
        [str(tmp_path / "layout")], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == [f"{name} {number}" for name, _, number in parts]


def test_errors_after_which_the_context_is_lost(headers: Path) -> None:
    text = (headers / "cuda.h").read_text()
    documented = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*(CUDA_ERROR_\w+)\s*=", text, re.DOTALL)
    assert len(documented) > 90
    lost = {name for words, name in documented if "inconsistent" in words}
    assert lost == errors.LOST
    assert set(errors.CURES) <= {name for _, name in documented}


def test_prototypes_of_what_is_there() -> None:
    """ctypes converts by them: a pointer stays whole, and a missing function is named."""
    library = ctypes.CDLL(None)
    found = bind(library, parse("size_t strlen(const char *)"), {})
    assert found["strlen"](b"seven..") == 7
    with pytest.raises(AttributeError, match="no_such_function"):
        bind(library, parse("int no_such_function(void)"), {})
    with pytest.raises(ValueError, match="not a prototype: int f"):
        parse("int f")
