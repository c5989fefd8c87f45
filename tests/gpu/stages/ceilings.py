"""What the machine can do at most: copies, products by libraries, launches and nodes of graphs."""

from __future__ import annotations

from collections.abc import Callable

from graphc.backends.cuda.driver import DEFAULT_STREAM, Node, pack
from graphc.profiler.kernels import ceilings

from ..bed import Bed
from ..results import Record

TEXT = """
extern "C" __global__ void nothing(float* x) { if (x == nullptr) x[0] = 1; }
extern "C" __global__ void copy(float4* y, const float4* x, i64 n) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (i64)blockDim.x)
    y[i] = x[i];
}
"""
NODES = (10, 100, 1000)


def run(bed: Bed, record: Record) -> None:
    """A line for each ceiling."""
    _copies(bed, record)
    _launches(bed, record)
    _own(bed, record)
    _libraries(record)


def _copies(bed: Bed, record: Record) -> None:
    """Bytes read and written per second: by the driver, and by a kernel with 16-byte accesses."""
    size = 2 << 30 if bed.large else 1 << 16
    x, y = bed.driver.allocate(size), bed.driver.allocate(size)
    bed.driver.fill(x, 0x3F, 1, size, DEFAULT_STREAM)
    kernel = bed.functions(TEXT, "copy")["copy"]
    work: dict[str, Callable[..., object]] = {
        "copy by the driver": lambda stream: bed.driver.copy(y, x, size, stream),
        "fill by the driver": lambda stream: bed.driver.fill(y, 0, 4, size // 4, stream),
    }
    for blocks in (132 * 8, 132 * 32) if bed.large else (4,):
        launch = bed.driver.prepare(
            kernel, (blocks, 1, 1), (256, 1, 1), pack("PPq", (y, x, size // 16))
        )
        work[f"copy by a kernel, {blocks} blocks"] = bed.begin(launch)
    for name, begin in work.items():
        least, median, most = bed.milliseconds(begin, 20 if bed.large else 2)
        moved = size if name.startswith("fill") else 2 * size
        speed = moved / median / 1e9 if median else 0.0
        record(name, bytes=moved, ms=median, ms_least=least, ms_most=most, terabytes_per_s=speed)
    for place in (x, y):
        bed.driver.free(place)


def _launches(bed: Bed, record: Record) -> None:
    """What the host needs for a launch and for a graph, and the device for each node."""
    driver = bed.driver
    place = driver.allocate(4096)
    kernel = bed.functions(TEXT, "nothing")["nothing"]
    launch = driver.prepare(kernel, (1, 1, 1), (32, 1, 1), pack("P", (place,)))
    stream = driver.create_stream()
    count = 2000 if bed.large else 20
    host = bed.microseconds_of_host(lambda: driver.launch(launch, stream), count)
    record("launch", us_of_host=host)
    for nodes in NODES if bed.large else NODES[:1]:
        graph = driver.create_graph()
        chain: list[Node] = []
        for _ in range(nodes):
            chain.append(driver.add_launch(graph, chain[-1:], launch))
        executable = driver.instantiate(graph)
        _, median, _ = bed.milliseconds(
            lambda on, executable=executable: driver.launch_graph(executable, on)
        )
        _, loop, _ = bed.milliseconds(
            lambda on, nodes=nodes: [driver.launch(launch, on) for _ in range(nodes)], 5
        )
        host = bed.microseconds_of_host(
            lambda executable=executable: driver.launch_graph(executable, stream), 20
        )
        update = bed.microseconds_of_host(
            lambda executable=executable, chain=chain: driver.update_launch(
                executable, chain[0], launch
            ), 20,
        )
        record(
            f"graph of {nodes}", us_of_host=host, us_per_node=median * 1e3 / nodes,
            us_per_launch_of_a_loop=loop * 1e3 / nodes, us_of_an_update=update,
        )


def _own(bed: Bed, record: Record) -> None:
    """What graphc's profiler says are the most, and takes shares of."""
    with bed.device():
        found = ceilings(0)
    record("graphc's ceilings", found=found and found._asdict())


def _libraries(record: Record) -> None:
    """Products of PyTorch's libraries: the ceilings of arithmetic."""
    try:
        import torch
    except ImportError:
        record("products", missing="torch")
        return
    if not torch.cuda.is_available():
        record("products", missing="a GPU that PyTorch sees")
        return
    for name, dtype, tf32 in (
        ("bf16", torch.bfloat16, False), ("f16", torch.float16, False),
        ("tf32", torch.float32, True), ("f32", torch.float32, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for n in (2048, 4096, 8192):
            a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
            times = []
            for turn in range(13):
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                a @ b
                last.record()
                last.synchronize()
                if turn >= 3:
                    times.append(first.elapsed_time(last))
            times.sort()
            record(f"torch {name} {n}", ms=times[5], tflops=2 * n**3 / times[5] / 1e9)
