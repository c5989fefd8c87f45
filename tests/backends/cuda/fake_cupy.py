"""The part of CuPy that graphc calls, by NumPy on an emulated device's memory, which the host may
address. What is computed waits for the stream that is current, and for no other; results and
scratch come from the allocator in use. LAPACK's complaints are raised where `errstate` says so, and
are wrong numbers elsewhere, as CuPy's are."""

from __future__ import annotations

import ctypes
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from graphc.backends.cuda.driver import Stream
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.routines.library import CuPy


class Pointer:
    def __init__(self, memory: Any, offset: int) -> None:
        self.mem, self.ptr = memory, memory.ptr + offset


class Unowned:
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class Fake:
    """`calls`: what was computed; `plans`: how often the cache of plans was cleared; `release`:
    13 or 14."""

    def __init__(self, driver: EmulatedDriver, release: int = 14) -> None:
        self.driver, self.release = driver, release
        self.calls: list[str] = []
        self.plans = 0
        self.missing = ""  # a function whose library is not there
        self._stream: int | None = None
        self._allocate: Callable[[int], Pointer] | None = None
        self._raises = False

    # --- memory and streams -------------------------------------------------------------------

    def external_stream(self, ptr: int, device_id: int = -1) -> AbstractContextManager[None]:
        if self.release >= 14:
            warnings.warn("ExternalStream is deprecated", DeprecationWarning, stacklevel=2)
        return self.entered(ptr)

    def from_external(self, stream: Any) -> AbstractContextManager[None]:
        version, ptr = stream.__cuda_stream__()
        assert version == 0
        return self.entered(ptr)

    @contextmanager
    def entered(self, ptr: int) -> Iterator[None]:
        before, self._stream = self._stream, ptr
        try:
            yield
        finally:
            self._stream = before

    @contextmanager
    def using_allocator(self, allocate: Callable[[int], Pointer]) -> Iterator[None]:
        before, self._allocate = self._allocate, allocate
        try:
            yield
        finally:
            self._allocate = before

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        yield

    @contextmanager
    def errstate(self, linalg: str) -> Iterator[None]:
        before, self._raises = self._raises, linalg == "raise"
        try:
            yield
        finally:
            self._raises = before

    def arrive(self) -> None:
        """What is on the current stream has happened."""
        assert self._stream is not None, "outside of a stream"
        self.driver.wait_for_stream(Stream(self._stream))

    def wrap(self, shape: tuple[int, ...], dtype: Any, pointer: Pointer) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        assert size <= pointer.mem.size
        raw = (ctypes.c_char * max(size, 1)).from_address(pointer.ptr)
        found = np.frombuffer(raw, np.uint8, size).view(dtype).reshape(shape).view(Array)
        found.fake, found.pointer = self, pointer
        return found

    def here(self, value: Any) -> Any:
        """A result of NumPy's as an array on the device."""
        if isinstance(value, tuple):
            return tuple(map(self.here, value))
        assert self._allocate is not None, "outside of an allocator"
        plain = np.asarray(value)
        made = self.wrap(plain.shape, plain.dtype, self._allocate(plain.nbytes))
        np.copyto(made.view(np.ndarray), plain)
        return made

    def lifted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if name == self.missing:
                raise ImportError(f"lib of {name} was not found")
            for each in arguments:
                assert not isinstance(each, np.ndarray) or isinstance(each, Array), name
            self.arrive()
            self.calls.append(name)
            try:
                return self.here(function(*map(plain, arguments), **named))
            except np.linalg.LinAlgError:
                if self._raises:
                    raise
                return self.here(np.full_like(plain(arguments[0]), 77))

        return call

    # --- modules ------------------------------------------------------------------------------

    def library(self) -> CuPy:
        protocol = {"from_external": self.from_external} if self.release >= 14 else {}
        cuda = types.SimpleNamespace(
            Stream=types.SimpleNamespace(**protocol), Device=self.device,
            ExternalStream=self.external_stream, UnownedMemory=Unowned,
            using_allocator=self.using_allocator, MemoryPointer=Pointer,
        )
        names = ("isfinite", "broadcast_to", "empty_like", "prod", "matmul", "conj", "abs", "sign",
                 "swapaxes", "maximum", "where", "zeros", "eye", "add", "subtract", "multiply",
                 "divide", "negative", "exp", "log", "sqrt", "sin", "cos", "equal", "not_equal",
                 "full", "arange")
        cupy: Any = types.SimpleNamespace(
            cuda=cuda, ndarray=self.wrap,
            **{name: self.lifted(name, getattr(np, name)) for name in names},
        )
        cupy.concatenate = self.lifted("concatenate", _concatenate)
        cupy.linalg = types.SimpleNamespace(**{
            name: self.lifted(f"linalg.{name}", getattr(np.linalg, name))
            for name in ("inv", "cholesky", "slogdet", "det", "qr", "svd", "eigh")
        })
        cupy.linalg.solve = self.lifted("linalg.solve", _strict_solve)
        transforms = ("fftn", "ifftn", "rfftn", "irfftn")
        cupy.fft = types.SimpleNamespace(
            config=types.SimpleNamespace(clear_plan_cache=self._cleared),
            **{name: self.lifted(f"fft.{name}", getattr(np.fft, name)) for name in transforms},
        )
        cupyx: Any = types.SimpleNamespace(errstate=self.errstate)
        triangular = self.lifted("solve_triangular", _solve_triangular)
        linalg: Any = types.SimpleNamespace(solve_triangular=triangular)
        return CuPy(cupy, cupyx, linalg)

    def _cleared(self) -> None:
        self.plans += 1


class Array(np.ndarray):
    """See cupy.ndarray."""

    fake: Any = None

    def __array_finalize__(self, of: Any) -> None:
        self.fake = getattr(of, "fake", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        self.fake.arrive()
        return self.fake.here(getattr(ufunc, method)(*map(plain, inputs), **named))

    def __setitem__(self, key: Any, value: Any) -> None:
        assert isinstance(value, Array)
        self.fake.arrive()
        self.fake.calls.append("stored")
        plain(self)[key] = plain(value)

    def copy(self, *rest: Any) -> Any:
        self.fake.arrive()
        self.fake.calls.append("copied")
        return self.fake.here(plain(self))

    def astype(self, dtype: Any, *rest: Any, **named: Any) -> Any:
        self.fake.arrive()
        return self.fake.here(plain(self).astype(dtype))


def plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Array) else value


def _concatenate(xs: Any, axis: int) -> Any:
    return np.concatenate([plain(x) for x in xs], axis=axis)


def _strict_solve(a: Any, b: Any) -> Any:
    """CuPy's does not broadcast."""
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
    return np.linalg.solve(a, b)


def _solve_triangular(a: Any, b: Any, *, lower: bool, unit_diagonal: bool) -> Any:
    assert a.shape[:-2] == b.shape[:-2]
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        n = range(a.shape[-1])
        a = a.copy()
        a[..., n, n] = 1
    return np.linalg.solve(a, b)
