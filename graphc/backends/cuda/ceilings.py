"""What a device does at most, measured once and kept beside its code: bytes that a copy moves, and
sums of products of bf16 that its tensor cores make, in a second. Shares of these say how good a
kernel is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from graphc.backends.cuda.code import Code
from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Attribute, Launch, Stream, pack
from graphc.backends.cuda.instructions import INSTRUCTIONS
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import Source, Stage, Target
from graphc.backends.host.store import Store

_MAGIC = b"graphc ceilings 1\n"
_LITTLE, _MUCH = 1 << 20, 1 << 28  # bytes that are copied: to see whether there is a clock, to time
_STEPS = 1 << 12  # of the loop over products
_THREADS = 256
_COPY = """
extern "C" __global__ void ceiling_copy(float4* to, const float4* from, i64 count) {
  const i64 all = gridDim.x * (i64)blockDim.x;
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += all) to[i] = from[i];
}
"""
# Numbers between 1 and 2, of both signs: products of zeros take less power, and run faster.
_NUMBERS = """
__device__ inline unsigned two_halves(unsigned n) {
  n = n * 2654435761u; n ^= n >> 15;
  return 0x3f803f80u | (n & 0x807f807fu);
}
"""
_MMA = """
extern "C" __global__ void ceiling_products(float* result, i64 steps) {
  const int CHAINS = 8;
  float d[CHAINS][4] = {};
  unsigned a[4], b[CHAINS][2];
  for (int n = 0; n < 4; n++) a[n] = two_halves(threadIdx.x * 32 + n);
  for (int n = 0; n < 2 * CHAINS; n++) b[n / 2][n % 2] = two_halves(threadIdx.x * 32 + 8 + n);
  for (i64 step = 0; step < steps; step++)
    #pragma unroll
    for (int n = 0; n < CHAINS; n++) mma_bf16(d[n], a, b[n]);
  float sum = 0;
  for (int n = 0; n < CHAINS; n++) sum += d[n][0] + d[n][1] + d[n][2] + d[n][3];
  result[blockIdx.x * (i64)blockDim.x + threadIdx.x] = sum;
}
"""
_WGMMA = """
extern "C" __global__ void __launch_bounds__(256) ceiling_products(float* result, i64 steps) {
  DYNAMIC_SHARED(shared);
  for (int n = threadIdx.x; n < 12288; n += blockDim.x) ((unsigned*)shared)[n] = two_halves(n);
  async_proxy_fence();
  __syncthreads();
  const unsigned a = shared_address(shared) + threadIdx.x / 128 * 8192;
  const unsigned b = shared_address(shared) + 16384;
  float d[128] = {};
  for (i64 step = 0; step < steps; step++) {
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; k++)
      wgmma_bf16_n256(d, wgmma_descriptor(a + k * 32), wgmma_descriptor(b + k * 32));
    wgmma_commit();
    wgmma_wait<0>();
  }
  float sum = 0;
  #pragma unroll
  for (int n = 0; n < 128; n++) sum += d[n];
  result[blockIdx.x * (i64)blockDim.x + threadIdx.x] = sum;
}
"""


class Ceilings(NamedTuple):
    """Bytes that a copy reads and writes, and floating-point operations (a product and its sum are
    two), in a second."""

    bytes: float
    flops: float


class _Products(NamedTuple):
    """How products are timed: the text, bytes of shared memory, blocks on a multiprocessor, and
    operations of a block in a step."""

    text: str
    shared: int
    blocks: int
    flops: int


def source(target: Target) -> tuple[Source, _Products]:
    """The two kernels for an architecture."""
    if target.architecture == "sm_90a":
        # 2 warpgroups, 64 rows each, 256 columns, 64 terms
        made = _Products(_WGMMA, 48 << 10, 1, 2 * 128 * 256 * 64)
    else:
        # 8 warps, 8 products of 16 x 8 and 16 terms each
        made = _Products(_MMA, 0, 4, 8 * 8 * 2 * 16 * 8 * 16)
    text = PRELUDE + INSTRUCTIONS + _NUMBERS + _COPY + made.text
    stages = (
        Stage("ceiling_copy", 1, _THREADS, 0), Stage("ceiling_products", 1, _THREADS, made.shared)
    )
    return Source(text, stages), made


def ceilings(device: Device, code: Code, target: Target) -> Ceilings | None:
    """What is known of a device, or measured now (a tenth of a second); None of one that has no
    clock."""
    written, products = source(target)
    known = _Known(device, code.directory, written.text)
    found = known.read()
    if found is None:
        found = _measured(device, code, written, products)
        if found is not None:
            known.write(found)
    return found


class _Known:
    """In a file, by the device's name, its driver and the kernels."""

    def __init__(self, device: Device, directory: Path | None, text: str) -> None:
        self._store = Store(directory, _MAGIC, ".ceilings")
        what = f"{device.name}\n{device.driver.version()}\n{text}"
        self._key = hashlib.sha256(what.encode()).digest()

    def read(self) -> Ceilings | None:
        data = self._store.read(self._key)
        return None if data is None else Ceilings(*json.loads(data))

    def write(self, found: Ceilings) -> None:
        self._store.write(self._key, json.dumps(found).encode())


def _measured(
    device: Device, code: Code, written: Source, products: _Products
) -> Ceilings | None:
    copy, multiply = code.load([written])[0].functions
    driver, stream = device.driver, device.current_stream()
    many = device.attribute(Attribute.MULTIPROCESSOR_COUNT)

    def copied(size: int) -> float | None:
        places = [device.allocate(size, stream) for _ in range(2)]
        addresses = [place.address for place in places]
        driver.fill(addresses[1], 0x3F, 1, size, stream)
        launch = driver.prepare(
            copy, (16 * many, 1, 1), (_THREADS, 1, 1), pack("PPq", (*addresses, size // 16))
        )
        return _seconds(device, _begun(device, launch), stream)

    if copied(_LITTLE) is None:
        return None
    size = min(_MUCH, driver.memory().free // 4) // 16 * 16
    seconds = copied(size)
    blocks = many * products.blocks
    results = device.allocate(4 * blocks * _THREADS, stream)
    launch = driver.prepare(
        multiply, (blocks, 1, 1), (_THREADS, 1, 1), pack("Pq", (results.address, _STEPS)),
        products.shared,
    )
    taken = _seconds(device, _begun(device, launch), stream)
    assert seconds is not None and taken is not None
    return Ceilings(2 * size / seconds, blocks * _STEPS * products.flops / taken)


def _begun(device: Device, launch: Launch) -> Callable[[Stream], None]:
    return lambda stream: device.driver.launch(launch, stream)


def _seconds(device: Device, begin: Callable[[Stream], None], stream: Stream) -> float | None:
    """The median of some runs; None without a clock."""
    driver = device.driver
    marks = [driver.create_event(timing=True) for _ in range(2)]
    times = []
    for _ in range(7):
        driver.record(marks[0], stream)
        begin(stream)
        driver.record(marks[1], stream)
        driver.wait_for_event(marks[1])
        times.append(driver.elapsed(*marks) * 1e-3)
    for mark in marks:
        driver.destroy_event(mark)
    return sorted(times[2:])[2] or None
