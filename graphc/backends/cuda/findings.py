"""What the GPU's backend needs of the machine, and what of it is there."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from graphc.backends.cuda import libcuda, libraries, nvrtc
from graphc.backends.cuda.driver import Attribute, Driver
from graphc.backends.cuda.errors import CudaError
from graphc.backends.cuda.libraries import CUBLASLT, DRIVER, NVRTC, RELEASES, MissingLibrary, dotted
from graphc.backends.host.finding import Finding

_CUPY = {release: f"cupy-cuda{release}x" for release in RELEASES}  # distributions


def findings() -> Iterator[Finding]:
    """See Backend."""
    yield _distribution("cuda-pathfinder", "cuda-pathfinder")
    yield from _compilers()
    yield _headers()
    yield _library(CUBLASLT)
    yield _cupy()
    yield from _devices()


def _distribution(subject: str, *names: str) -> Finding:
    for name in names:
        try:
            return Finding(subject, f"{metadata.version(name)} ({name})")
        except metadata.PackageNotFoundError:
            continue
    return Finding(subject, None, libraries.extras())


def _cupy() -> Finding:
    """CuPy, not imported: that takes long. Two of them break each other."""
    found = _distribution("CuPy", *_CUPY.values())
    both = [name for name in _CUPY.values() if _distribution("", name).found is not None]
    if len(both) < 2:
        return found
    return found._replace(found=" and ".join(both), cure=f"pip uninstall {both[1]} (or the other)")


def _compilers() -> Iterator[Finding]:
    """NVRTC of each release. One is enough."""
    found = libraries.available(NVRTC)
    for release in RELEASES:
        subject = f"NVRTC of CUDA {release}"
        there = [each for each in found if each.release == release]
        if there:
            yield Finding(subject, f"{dotted(there[0].version)}, {there[0].path}")
        else:
            other = ", or keep the other one" if found else ""
            yield Finding(subject, None, NVRTC.cure(release) + other)


def _headers() -> Finding:
    try:
        folder = libraries.headers()
    except MissingLibrary as missing:
        return Finding("CUDA headers", None, missing.cure)
    return Finding("CUDA headers", f"{dotted(libraries.headers_version(folder))}, {folder}")


def _library(library: libraries.Library) -> Finding:
    try:
        found = libraries.find(library)
    except MissingLibrary as missing:
        return Finding(library.title, None, missing.cure)
    return Finding(library.title, f"{dotted(found.version)}, {found.path}")


def _devices() -> Iterator[Finding]:
    """The driver, what it makes of its devices, and whether there is a compiler for it."""
    driver_line = _library(DRIVER)
    yield driver_line
    if driver_line.found is None:
        return
    try:
        driver = libcuda.driver()
        for device in range(driver.device_count()):
            yield _device(driver, device)
    except (CudaError, MissingLibrary) as error:
        said, _, cure = str(error).partition("Cure: ")
        yield Finding("GPU", None, cure or said)


def _device(driver: Driver, device: int) -> Finding:
    numbers = {name: driver.attribute(device, attribute) for name, attribute in (
        ("major", Attribute.COMPUTE_CAPABILITY_MAJOR),
        ("minor", Attribute.COMPUTE_CAPABILITY_MINOR),
        ("processors", Attribute.MULTIPROCESSOR_COUNT),
        ("shared", Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    )}
    major, minor = numbers["major"], numbers["minor"]
    said = (
        f"{driver.device_name(device)}: {major}.{minor}, {numbers['processors']} multiprocessors, "
        f"{driver.device_memory(device) / 2**30:.0f} GiB, {numbers['shared'] >> 10} KiB shared"
    )
    return Finding(f"GPU {device}", said, _cure(driver, 10 * major + minor))


def _cure(driver: Driver, capability: int) -> str:
    """What is to be done before code can be made for a device."""
    try:
        compiler = nvrtc.compiler_for(driver.version())
    except MissingLibrary as missing:
        return missing.cure
    return nvrtc.cure(compiler, capability)
