"""Peak memory of training steps and of inference, of graphc and of PyTorch.

    python benchmarks/memory.py [--only resnet] [--ways "graphc step"] [--calls 5] [--threads 1]

A fresh process for each figure: Linux's largest resident memory of it (VmHWM) after some calls, in
MB; in brackets, above what it had after importing the package and one tiny step, which loads what
any step does. graphc runs with the cache of a process before (warm), and with an empty one (cold,
the compiler included).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "suite"), str(HERE), str(HERE.parent)]

import large  # noqa: E402
import models  # noqa: E402
import zoo  # noqa: E402
from workloads import space  # noqa: E402

Build = Callable[[SimpleNamespace], Any]


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _integers(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape)


def _loaded(kind: str, **options: int) -> Build:
    return lambda s: getattr(models.load(s.torch.__name__), kind)(**options)


def _bert(s: SimpleNamespace) -> Any:
    return large.load(s.torch.__name__).Bert()


def _mean(s: SimpleNamespace) -> Any:
    """The encoder, averaged over its positions."""
    net = zoo.encoder(s, 512, 8, 6)

    class Mean(s.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return self.net(x).mean(1)

    return Mean()


# name: the model, its input, and how many classes a target has (None: for each position)
MODELS: dict[str, tuple[Build, Callable[[], np.ndarray], Callable[[], np.ndarray]]] = {
    "mlp b64": (_loaded("MLP"), lambda: _floats(64, 784), lambda: _integers(10, 64)),
    "lenet b64": (_loaded("LeNet"), lambda: _floats(64, 3, 32, 32), lambda: _integers(10, 64)),
    "resnet18 32x32 b32": (
        _loaded("ResNet18"), lambda: _floats(32, 3, 32, 32), lambda: _integers(10, 32)),
    "resnet18 224x224 b32": (
        zoo.resnet18, lambda: _floats(32, 3, 224, 224), lambda: _integers(1000, 32)),
    "mobilenet_v2 b8": (
        zoo.mobilenet_v2, lambda: _floats(8, 3, 224, 224), lambda: _integers(1000, 8)),
    "nanogpt b12": (
        _loaded("GPT"), lambda: _integers(65, 12, 64), lambda: _integers(65, 12, 64)),
    "gpt b4": (
        _loaded("GPT", vocab=8000, context=256, dim=512, heads=8, layers=6),
        lambda: _integers(8000, 4, 256), lambda: _integers(8000, 4, 256)),
    "lstm b32": (
        lambda s: zoo.lstm(s, 64, 128, 10), lambda: _floats(32, 50, 64),
        lambda: _integers(10, 32)),
    "encoder b4": (_mean, lambda: _floats(4, 128, 512), lambda: _integers(512, 4)),
    "bert base b4": (_bert, lambda: _integers(30522, 4, 128), lambda: _integers(768, 4)),
}
WAYS = ("torch", "graphc step", "graphc module", "graphc eager")


def _resident(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024


def _work(s: SimpleNamespace, way: str, build: Build, trains: bool) -> Callable[..., Any]:
    s.torch.manual_seed(0)
    net = build(s)
    if not trains:
        net.eval()
        model = s.torch.compile(net) if way in ("graphc step", "graphc module") else net

        def answer(x: Any, target: Any) -> Any:
            with s.torch.no_grad():
                return model(x)

        return answer
    optimizer = s.optim.AdamW(net.parameters(), lr=1e-4)
    model = s.torch.compile(net) if way == "graphc module" else net

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = s.F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return s.torch.compile(step) if way == "graphc step" else step


def _one(way: str, name: str, trains: bool, calls: int, threads: int) -> list[int]:
    """Peak bytes, and those before; in this process."""
    s = space(way.split()[0])
    s.torch.set_num_threads(threads)
    tiny = _work(s, way, lambda s: s.nn.Sequential(s.nn.Linear(8, 8), s.nn.LayerNorm(8)), trains)
    for _ in range(3):
        tiny(s.torch.from_numpy(_floats(4, 8)), s.torch.from_numpy(_integers(8, 4)))
    gc.collect()
    before = _resident("VmRSS")
    build, inputs, targets = MODELS[name]
    work = _work(s, way, build, trains)
    x, target = s.torch.from_numpy(inputs()), s.torch.from_numpy(targets())
    for _ in range(calls):
        work(x, target)
    return [_resident("VmHWM"), before]


def _ask(cache: str, *arguments: str) -> str:
    environment = {**os.environ, "GRAPHC_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, __file__, "--one", *arguments], env=environment,
                          text=True, capture_output=True)
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1:]}"
    peak, before = json.loads(done.stdout.splitlines()[-1])
    return f"{peak / 1e6:.0f} ({(peak - before) / 1e6:.0f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="models whose name has one")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--kinds", nargs="+", choices=("training", "inference"),
                        default=["training", "inference"])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        way, name, kind = args.one
        print(json.dumps(_one(way, name, kind == "training", args.calls, args.threads)))
        return 0
    ways = [w for way in args.ways
            for w in ([way] if way == "torch" else [f"{way}, cold", f"{way}, warm"])]
    print("| | " + " | ".join(ways) + " |\n" + "|---" * (len(ways) + 1) + "|")
    options = ["--calls", str(args.calls), "--threads", str(args.threads)]
    for name in MODELS:
        if args.only and not any(word in name for word in args.only):
            continue
        for kind in args.kinds:
            cells = []
            for way in args.ways:
                with tempfile.TemporaryDirectory(prefix="graphc-memory-") as cache:
                    for _ in range(1 if way == "torch" else 2):
                        cells.append(_ask(cache, way, name, kind, *options))
            print(f"| {name} {kind} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
