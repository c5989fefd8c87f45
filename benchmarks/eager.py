"""Eager mode: a training step of a small MLP, and single operators, against PyTorch.

    python benchmarks/eager.py [small|calls|large|step ...] [--rounds 7] [--threads 1] [--only TEXT]

step: zero_grad, forward, cross entropy, backward and Adam of 784-256-128-10 at batch 64.
small: operators on a few numbers, which show what a call costs; calls: those that code makes less
often. large: operators on about a million. Each engine is in a process of its own; rounds are
interleaved.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from engines import ROOT, spread

PACKAGES = ("torch", "graphc")
Work = Callable[[], Any]


def step_of(torch: Any) -> dict[str, Work]:
    """One training step of the MLP."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return {"step": step}


def small_of(torch: Any) -> dict[str, Work]:
    """Small calls, by what they are."""
    nn, F = torch.nn, torch.nn.functional
    x, y, n = torch.rand(4), torch.rand(4), torch.arange(4)
    w = torch.rand(4, requires_grad=True)
    a, b, one = torch.rand(4, 4), torch.rand(4, 4), torch.rand(())
    mask, classes = a > 0.5, torch.tensor([0, 1, 2, 3])
    image, images = torch.rand(1, 2, 8, 8), torch.rand(2, 4, 6, 6)
    linear, conv = nn.Linear(4, 4), nn.Conv2d(2, 2, 3)
    norm, layer = nn.BatchNorm2d(4), nn.LayerNorm(4)
    table = nn.Embedding(8, 4)
    frozen = nn.Linear(4, 4)
    frozen.requires_grad_(False)
    array = x.numpy()
    return {
        "x + y": lambda: x + y,
        "x + 1": lambda: x + 1,
        "x * y": lambda: x * y,
        "2.0 * x": lambda: 2.0 * x,
        "x - y": lambda: x - y,
        "x / y": lambda: x / y,
        "x ** 2": lambda: x**2,
        "-x": lambda: -x,
        "x > y": lambda: x > y,
        "x == y": lambda: x == y,
        "n + n": lambda: n + n,
        "x + n": lambda: x + n,
        "x.exp()": lambda: x.exp(),
        "x.sqrt()": lambda: x.sqrt(),
        "x.abs()": lambda: x.abs(),
        "x.clamp(0, 1)": lambda: x.clamp(0, 1),
        "sigmoid(x)": lambda: torch.sigmoid(x),
        "tanh(x)": lambda: torch.tanh(x),
        "relu(x)": lambda: F.relu(x),
        "gelu(x)": lambda: F.gelu(x),
        "where": lambda: torch.where(mask, a, b),
        "masked_fill": lambda: a.masked_fill(mask, 0.0),
        "x.sum()": lambda: x.sum(),
        "a.sum(1)": lambda: a.sum(1),
        "x.mean()": lambda: x.mean(),
        "a.mean(1)": lambda: a.mean(1),
        "a.max()": lambda: a.max(),
        "a.max(1)": lambda: a.max(1),
        "a.argmax(1)": lambda: a.argmax(1),
        "a.norm()": lambda: a.norm(),
        "softmax": lambda: F.softmax(a, 1),
        "log_softmax": lambda: F.log_softmax(a, 1),
        "a @ b": lambda: a @ b,
        "linear": lambda: linear(a),
        "linear, frozen": lambda: frozen(a),
        "conv2d": lambda: conv(image),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "batch_norm": lambda: norm(images),
        "layer_norm": lambda: layer(a),
        "dropout": lambda: F.dropout(a, 0.5),
        "embedding": lambda: table(classes),
        "cross_entropy": lambda: F.cross_entropy(a, classes),
        "mse_loss": lambda: F.mse_loss(a, b),
        "x[0]": lambda: x[0],
        "x[1:3]": lambda: x[1:3],
        "a[:, 1]": lambda: a[:, 1],
        "a[n]": lambda: a[n],
        "a[mask]": lambda: a[mask],
        "a[0] = 1": lambda: a.__setitem__(0, 1.0),
        "a[n] = b": lambda: b.__setitem__(classes, a),
        "a[mask] = 0": lambda: b.__setitem__(mask, 0.0),
        "index_add_": lambda: b.index_add_(0, classes, a),
        "view": lambda: a.view(2, 8),
        "reshape": lambda: a.reshape(-1),
        "transpose": lambda: a.transpose(0, 1),
        "permute": lambda: a.permute(1, 0),
        "unsqueeze": lambda: x.unsqueeze(0),
        "squeeze": lambda: a.squeeze(),
        "flatten": lambda: a.flatten(),
        "expand": lambda: x.expand(4, 4),
        "chunk": lambda: a.chunk(2),
        "cat": lambda: torch.cat([x, y]),
        "stack": lambda: torch.stack([x, y]),
        "x.item()": lambda: one.item(),
        "float(x)": lambda: float(one),
        "x.shape": lambda: a.shape,
        "x.size(0)": lambda: a.size(0),
        "tolist": lambda: x.tolist(),
        "numpy": lambda: x.numpy(),
        "detach": lambda: w.detach(),
        "clone": lambda: x.clone(),
        "contiguous": lambda: x.contiguous(),
        "to(float64)": lambda: x.to(torch.float64),
        "to(float32)": lambda: x.to(torch.float32),
        "n.float()": lambda: n.float(),
        "x.add_(y)": lambda: x.add_(y),
        "x.mul_(1)": lambda: x.mul_(1.0),
        "x.copy_(y)": lambda: x.copy_(y),
        "x.zero_()": lambda: y.zero_(),
        "zeros(4)": lambda: torch.zeros(4),
        "ones_like": lambda: torch.ones_like(x),
        "randn(4)": lambda: torch.randn(4),
        "randperm(8)": lambda: torch.randperm(8),
        "arange(4)": lambda: torch.arange(4),
        "tensor([1., 2.])": lambda: torch.tensor([1.0, 2.0]),
        "from_numpy": lambda: torch.from_numpy(array),
        "w + y": lambda: w + y,
        "w * y": lambda: w * y,
        "w[0]": lambda: w[0],
        "w.sum()": lambda: w.sum(),
        "relu(w)": lambda: F.relu(w),
        "(w * y).sum().backward()": lambda: (w * y).sum().backward(),
        "linear+mse backward": lambda: F.mse_loss(linear(a), b).backward(),
    }


def calls_of(torch: Any) -> dict[str, Work]:
    """Small calls that code makes less often."""
    nn, F = torch.nn, torch.nn.functional
    x, y, n = torch.rand(4), torch.rand(4), torch.arange(4)
    w = torch.rand(4, 4, requires_grad=True)
    a, b, one = torch.rand(4, 4), torch.rand(4, 4), torch.rand(())
    mask, truth = a > 0.5, torch.tensor(True)
    image, batch = torch.rand(1, 2, 8, 8), torch.rand(2, 4, 4)
    q = torch.rand(1, 2, 4, 4)
    columns, table = n.reshape(4, 1), torch.zeros(4, 4)
    grid = torch.rand(1, 4, 4, 2) * 2 - 1
    z, pairs = torch.polar(x, y), torch.rand(4, 2)
    parameters = [nn.Parameter(torch.rand(4)) for _ in range(4)]
    for each in parameters:
        each.grad = torch.rand(4)
    return {
        "uniform_": lambda: b.uniform_(),
        "uniform_(-1, 1)": lambda: b.uniform_(-1, 1),
        "normal_": lambda: b.normal_(),
        "normal_(0, 0.02)": lambda: b.normal_(0, 0.02),
        "bernoulli": lambda: torch.bernoulli(a),
        "bernoulli_": lambda: b.bernoulli_(0.5),
        "multinomial": lambda: torch.multinomial(a, 1),
        "rand(4)": lambda: torch.rand(4),
        "randn(4, 4)": lambda: torch.randn(4, 4),
        "randn_like": lambda: torch.randn_like(a),
        "rand_like": lambda: torch.rand_like(a),
        "randint": lambda: torch.randint(0, 10, (4,)),
        "zeros_like": lambda: torch.zeros_like(a),
        "ones(4)": lambda: torch.ones(4),
        "empty(4)": lambda: torch.empty(4),
        "full": lambda: torch.full((4,), 2.0),
        "full_like": lambda: torch.full_like(a, 2.0),
        "new_zeros": lambda: a.new_zeros(4),
        "eye": lambda: torch.eye(4),
        "linspace": lambda: torch.linspace(0, 1, 4),
        "add_ of a multiple": lambda: table.add_(b, alpha=1e-6),
        "fill_": lambda: b.fill_(1.0),
        "clamp_": lambda: b.clamp_(0, 1),
        "div_": lambda: b.div_(2.0),
        "masked_fill_": lambda: b.masked_fill_(mask, 0.0),
        "scatter_": lambda: table.scatter_(1, columns, 1.0),
        "scatter_add_": lambda: table.scatter_add_(1, columns, a),
        "index_copy_": lambda: table.index_copy_(0, n, a),
        "index_add": lambda: a.index_add(0, n, b),
        "index_copy": lambda: a.index_copy(0, n, b),
        "scatter": lambda: a.scatter(1, columns, 1.0),
        "masked_scatter": lambda: a.masked_scatter(mask, b),
        "masked_scatter_": lambda: table.masked_scatter_(mask, b),
        "a[n, n]": lambda: a[n, n],
        "a[:, n]": lambda: a[:, n],
        "a[...] = b": lambda: table.__setitem__(..., b),
        "n * 2": lambda: n * 2,
        "n % 2": lambda: n % 2,
        "x ** y": lambda: x**y,
        "gather": lambda: a.gather(1, columns),
        "index_select": lambda: a.index_select(0, n),
        "nonzero": lambda: mask.nonzero(),
        "masked_select": lambda: a.masked_select(mask),
        "topk": lambda: a.topk(2, 1),
        "sort": lambda: a.sort(1),
        "argsort": lambda: a.argsort(1),
        "unique": lambda: torch.unique(n),
        "sign": lambda: a.sign(),
        "log": lambda: a.log(),
        "sin": lambda: a.sin(),
        "rsqrt": lambda: a.rsqrt(),
        "pow(x, 3)": lambda: a.pow(3),
        "silu": lambda: F.silu(a),
        "maximum": lambda: torch.maximum(a, b),
        "a.min()": lambda: a.min(),
        "var": lambda: a.var(1),
        "std": lambda: a.std(),
        "cumsum": lambda: a.cumsum(1),
        "mask.sum()": lambda: mask.sum(),
        "mask.any()": lambda: mask.any(),
        "mask.all()": lambda: mask.all(),
        "bool(x)": lambda: bool(truth),
        "int(x)": lambda: int(one),
        "allclose": lambda: torch.allclose(a, a),
        "~mask": lambda: ~mask,
        "mask & mask": lambda: mask & mask,
        "unbind": lambda: a.unbind(0),
        "split": lambda: a.split(2, 0),
        "x.t()": lambda: a.t(),
        "x.T": lambda: a.T,
        "expand_as": lambda: x.expand_as(a),
        "repeat": lambda: x.repeat(2, 2),
        "repeat_interleave": lambda: x.repeat_interleave(2),
        "flip": lambda: a.flip(0),
        "roll": lambda: torch.roll(a, 1, 0),
        "diag": lambda: torch.diag(x),
        "rot90": lambda: torch.rot90(a),
        "cartesian_prod": lambda: torch.cartesian_prod(x, y),
        "view_as_real": lambda: torch.view_as_real(z),
        "view_as_complex": lambda: torch.view_as_complex(pairs),
        "arange(0, 8, 2)": lambda: torch.arange(0, 8, 2),
        "LongTensor": lambda: torch.LongTensor([1, 2]),
        "finfo": lambda: torch.finfo(a.dtype).min,
        "complex": lambda: torch.complex(x, y),
        "polar": lambda: torch.polar(x, y),
        "quantile": lambda: a.quantile(0.5),
        "median": lambda: a.median(),
        "mode": lambda: a.mode(1),
        "tril": lambda: a.tril(),
        "triu": lambda: torch.triu(a, 1),
        "unfold": lambda: a.unfold(1, 2, 1),
        "meshgrid": lambda: torch.meshgrid(n, n, indexing="ij"),
        "pad": lambda: F.pad(a, (1, 1)),
        "pad reflect": lambda: F.pad(image, (1, 1, 1, 1), mode="reflect"),
        "one_hot": lambda: F.one_hot(n, 4),
        "normalize": lambda: F.normalize(a, dim=1),
        "avg_pool2d": lambda: F.avg_pool2d(image, 2),
        "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(image, 1),
        "interpolate": lambda: F.interpolate(image, scale_factor=2),
        "interpolate, bilinear": lambda: F.interpolate(
            image, scale_factor=2, mode="bilinear", align_corners=False
        ),
        "grid_sample": lambda: F.grid_sample(image, grid, align_corners=False),
        "attention": lambda: F.scaled_dot_product_attention(q, q, q),
        "attention, causal": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "cross_entropy, ignored": lambda: F.cross_entropy(a, n, ignore_index=0),
        "bmm": lambda: torch.bmm(batch, batch),
        "einsum": lambda: torch.einsum("ij,jk->ik", a, b),
        "outer": lambda: torch.outer(x, y),
        "data": lambda: a.data,
        "to(device)": lambda: a.to("cpu"),
        "bool()": lambda: a.bool(),
        "long()": lambda: a.long(),
        "type_as": lambda: n.type_as(a),
        "new_tensor": lambda: torch.as_tensor([1, 2]),
        "numel": lambda: a.numel(),
        "clip_grad_norm_": lambda: nn.utils.clip_grad_norm_(parameters, 1.0),
        "w.log_softmax": lambda: w.log_softmax(1),
        "w.mean(1)": lambda: w.mean(1),
        "w.gather": lambda: w.gather(1, columns),
    }


def large_of(torch: Any) -> dict[str, Work]:
    """Large calls, of about a million numbers each."""
    nn, F = torch.nn, torch.nn.functional
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    v = torch.randn(1024)
    rows = torch.randn(8192, 128)
    labels = torch.randint(0, 1024, (1024,))
    image, weight = torch.randn(8, 32, 64, 64), torch.randn(32, 32, 3, 3)
    planes, c, mask = torch.randn(32, 1, 3, 3), a.bfloat16(), a > 0
    norm, trained = nn.BatchNorm2d(32), nn.BatchNorm2d(32)
    norm.eval()
    layer = nn.LayerNorm(1024)
    filters = torch.randn(32, 32, 3, 3, requires_grad=True)
    w, upstream = torch.randn(1024, 1024, requires_grad=True), torch.randn(1024, 1024)

    def backward_of(function: Callable[[Any], Any]) -> Work:
        def both() -> None:
            w.grad = None
            function(w).backward(upstream)

        return both

    def both_of_conv() -> None:
        filters.grad = None
        F.conv2d(image, filters, padding=1).sum().backward()

    def loss() -> None:
        w.grad = None
        F.cross_entropy(w, labels).backward()

    sequence = torch.randn(50, 32, 256)

    def recurrent(kind: str, *sizes: int, **options: Any) -> tuple[Work, Work]:
        network = getattr(nn, kind)(256, *sizes, **options)

        def forward() -> None:
            with torch.no_grad():
                network(sequence)

        def both() -> None:
            network.zero_grad()
            network(sequence)[0].sum().backward()

        return forward, both

    lstm, gru, rnn = recurrent("LSTM", 256), recurrent("GRU", 256), recurrent("RNN", 256)
    deep = recurrent("LSTM", 256, 2, bidirectional=True)
    return {
        "a + b": lambda: a + b,
        "exp": lambda: a.exp(),
        "tanh": lambda: a.tanh(),
        "sigmoid": lambda: a.sigmoid(),
        "relu": lambda: F.relu(a),
        "gelu": lambda: F.gelu(a),
        "gelu tanh": lambda: F.gelu(a, approximate="tanh"),
        "silu": lambda: F.silu(a),
        "softmax": lambda: F.softmax(a, 1),
        "softmax 8192x128": lambda: F.softmax(rows, 1),
        "log_softmax": lambda: F.log_softmax(a, 1),
        "layer_norm": lambda: layer(a.detach()),
        "cross_entropy": lambda: F.cross_entropy(a, labels),
        "batch_norm training": lambda: trained(image),
        "batch_norm eval": lambda: norm(image),
        "conv 3x3": lambda: F.conv2d(image, weight, padding=1),
        "conv depthwise": lambda: F.conv2d(image, planes, padding=1, groups=32),
        "hardswish": lambda: F.hardswish(a),
        "leaky_relu": lambda: F.leaky_relu(a),
        "bfloat16 a + b": lambda: c + c,
        "bfloat16 gelu": lambda: F.gelu(c),
        "a.t() + b": lambda: a.t() + b,
        "topk": lambda: a.topk(8, 1),
        "max_pool 2": lambda: F.max_pool2d(image, 2),
        "sum": lambda: a.sum(),
        "sum rows": lambda: a.sum(1),
        "sum columns": lambda: a.sum(0),
        "mean": lambda: a.mean(),
        "sum of a mask": lambda: mask.sum(),
        "var": lambda: a.var(1),
        "max rows": lambda: a.max(1),
        "amax columns": lambda: a.amax(0),
        "argmax": lambda: a.argmax(1),
        "a.t().contiguous()": lambda: a.t().contiguous(),
        "a * v": lambda: a * v,
        "where": lambda: torch.where(a > 0, a, b),
        "dropout": lambda: F.dropout(a, 0.1),
        "a @ b": lambda: a @ b,
        "gelu backward": backward_of(F.gelu),
        "softmax backward": backward_of(lambda x: F.softmax(x, 1)),
        "layer_norm backward": backward_of(layer),
        "cross_entropy backward": loss,
        "conv 3x3, weight's backward": both_of_conv,
        "LSTM": lstm[0],
        "LSTM backward": lstm[1],
        "LSTM 2 layers both ways, backward": deep[1],
        "GRU": gru[0],
        "GRU backward": gru[1],
        "RNN": rnn[0],
        "RNN backward": rnn[1],
    }


SUITES = {"step": step_of, "small": small_of, "calls": calls_of, "large": large_of}


def _repeat(work: Work, seconds: float) -> int:
    """How often a piece of work fits into a time; it is warm then."""
    for _ in range(20):
        work()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        work()
        count += 1
    return max(count, 1)


def _worker(args: argparse.Namespace) -> None:
    """Answer each line with the microseconds of every piece of work."""
    torch: Any = importlib.import_module(args.worker)
    torch.set_num_threads(args.threads)
    works: dict[str, Work] = {}
    for suite in args.suites:
        works |= SUITES[suite](torch)
    works = {name: work for name, work in works.items() if args.only in name}
    counts = {name: _repeat(work, args.seconds) for name, work in works.items()}
    for _ in sys.stdin:
        found = {}
        for name, work in works.items():
            count = counts[name]
            start = time.perf_counter()
            for _ in range(count):
                work()
            found[name] = 1e6 * (time.perf_counter() - start) / count
        print(json.dumps(found), flush=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("suites", nargs="*", default=["step", "small"], metavar="SUITE")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.01, help="of each work in a round")
    parser.add_argument("--only", default="", help="works that have this in their name")
    parser.add_argument("--worker", choices=PACKAGES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _worker(args)
        return 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(args.threads)}
    workers = {
        package: subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--worker", package],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for package in PACKAGES
    }
    times: dict[str, dict[str, list[float]]] = {}
    for _ in range(args.rounds):
        for package, worker in workers.items():
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            for name, value in json.loads(worker.stdout.readline()).items():
                times.setdefault(name, {}).setdefault(package, []).append(value)
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    print(f"{'us, median (quartiles)':<26}{'torch':>26}{'graphc':>26}{'ratio':>8}")
    for name, by_package in times.items():
        cells, middles = "", []
        for package in PACKAGES:
            middle, low, high = spread(by_package[package])
            middles.append(middle)
            cells += f"{f'{middle:.2f} ({low:.2f}-{high:.2f})':>26}"
        print(f"{name:<26}{cells}{middles[1] / middles[0]:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
