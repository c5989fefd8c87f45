"""Freestanding libraries against ONNX Runtime, OpenVINO and AOTInductor: sizes, time to load, time
of an inference, time from the start of a process to its first answer.

    python benchmarks/library.py --peers PYTHON [--threads 1 2] [--rows 1] [--rounds 9]

PYTHON is an interpreter that has onnxruntime, openvino and torch; engines that it lacks are left
out by name. The ONNX file is graphc's own export of the same model, and every engine's answer is
compared with the exported program's before anything is timed. graphc's library is called from C,
and from Python by load_library. Rounds are interleaved: in each, every engine has its turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from models import batch, load, make, training_step

HERE = Path(__file__).parent
ENGINES = HERE / "library_engines"
NAMES = ("lenet", "resnet18", "gpt")
PEERS = {"onnxruntime": "onnxruntime", "openvino": "openvino", "aotinductor": "torch"}


def prepare(name: str, rows: int, folder: Path) -> dict[str, Any]:
    """Libraries, the ONNX file, weights, an input and the answer to it; and how large they are."""
    import graphc as torch
    import graphc.export
    import graphc.onnx
    from graphc.export import safetensors

    torch.manual_seed(0)
    model, optimizer = make(load("graphc"), name)
    x, y = (array[:rows] for array in batch(name))
    given = torch.from_numpy(x)
    program = graphc.export.export(model.eval(), (given,))
    start = time.perf_counter()
    made = graphc.export.aot(program, folder, name=name)
    seconds = time.perf_counter() - start
    np.save(folder / "input.npy", x)
    x.tofile(folder / "input.bin")
    np.save(folder / "answer.npy", program(given).numpy())
    graphc.onnx.export(model, (given,), folder / "model.onnx")
    arrays = {key: value.numpy() for key, value in model.state_dict().items()}
    (folder / "model.safetensors").write_bytes(safetensors.dumps(arrays))
    weights = sum(p.numel() * p.element_size() for p in model.state_dict().values())
    step = training_step(load("graphc"), model.train(), optimizer)
    x, y = batch(name)
    exported = graphc.export.export_step(step, (torch.from_numpy(x), torch.from_numpy(y)))
    step_made = graphc.export.aot(exported, folder, name=f"{name}_step")
    client = folder / "client"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-I", folder, f'-DHEADER="{name}.h"', f"-DMODEL={name}",
         ENGINES / "client.c", "-ldl", "-o", client], check=True,
    )
    size = {
        "weights": weights, "library": made.library.stat().st_size,
        "step": step_made.library.stat().st_size, "onnx": (folder / "model.onnx").stat().st_size,
        "seconds to make it": seconds,
    }
    return size


def command(engine: str, name: str, threads: int, folder: Path, peers: str) -> list[str]:
    """What times an engine."""
    answer = str(folder / f"{engine}.answer")
    if engine == "graphc, C":
        files = [str(folder / f"lib{name}.so"), str(threads), str(folder / "input.bin"), answer]
        return [str(folder / "client"), *files]
    given = [str(threads), str(folder / "input.npy"), answer]
    worker = str(ENGINES / "worker.py")
    if engine == "graphc, Python":
        return [sys.executable, worker, "graphc", str(folder / f"lib{name}.so"), *given]
    file = "model.onnx" if engine != "aotinductor" else f"threads{threads}.pt2"
    return [peers, worker, engine, str(folder / file), *given]


class Engine:
    """A process of an engine that has answered once."""

    def __init__(self, name: str, command: list[str], threads: int, folder: Path) -> None:
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
        start = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.loading = float(self._line())
        self.first = time.perf_counter() - start
        wanted = np.load(folder / "answer.npy")
        found = np.fromfile(folder / f"{name}.answer", np.float32).reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return line

    def calls(self, count: int) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return [float(each) for each in self._line().split()]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def present(python: str, without: list[str]) -> list[str]:
    """The peers whose packages an interpreter has; says which it lacks."""
    found = []
    for name, package in PEERS.items():
        look = f"import importlib.util; raise SystemExit(not importlib.util.find_spec({package!r}))"
        if name in without:
            continue
        if subprocess.run([python, "-c", look]).returncode == 0:
            found.append(name)
        else:
            print(f"{name} is left out: {python} has no {package}")
    return found


def summary(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{1e3 * middle:.3f} ({1e3 * low:.3f}-{1e3 * high:.3f})"


def measure(
    name: str, engines: list[str], threads: int, rounds: int, folder: Path, peers: str
) -> dict[str, dict[str, list[float]]]:
    """Seconds of loading, to the first answer, and of calls, of each engine."""
    commands = {each: command(each, name, threads, folder, peers) for each in engines}
    found: dict[str, dict[str, list[float]]] = {
        each: {"loading": [], "first": [], "call": []} for each in engines
    }
    for _ in range(rounds):
        for each in engines:
            engine = Engine(each, commands[each], threads, folder)
            found[each]["loading"].append(engine.loading)
            found[each]["first"].append(engine.first)
            engine.close()
    running = [Engine(each, commands[each], threads, folder) for each in engines]
    for engine in running:
        engine.calls(10)
    for _ in range(rounds):
        for engine in running:
            found[engine.name]["call"].append(statistics.median(engine.calls(20)))
    for engine in running:
        engine.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", required=True, metavar="PYTHON")
    parser.add_argument("--models", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--without", nargs="*", default=[], choices=PEERS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    everything = []
    wanted = present(args.peers, args.without)
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix="graphc-library-") as temporary:
            folder = Path(temporary)
            sizes = prepare(name, args.rows, folder)
            print(f"\n{name}, {args.rows} rows; in bytes:", sizes, flush=True)
            for threads in args.threads:
                peers = list(wanted)
                if "aotinductor" in peers:
                    package = folder / f"threads{threads}.pt2"
                    build = [ENGINES / "build_inductor.py", name, folder / "model.safetensors",
                             folder / "input.npy", str(threads), package]
                    done = subprocess.run([args.peers, *build], capture_output=True, text=True)
                    if done.returncode:
                        peers.remove("aotinductor")
                        print("aotinductor is left out:", done.stderr.strip().split("\n")[-1])
                    else:
                        print(f"aotinductor's package: {package.stat().st_size} bytes")
                engines = ["graphc, C", "graphc, Python", *peers]
                found = measure(name, engines, threads, args.rounds, folder, args.peers)
                everything.append({"model": name, "threads": threads, **sizes, "engines": found})
                print(f"{threads} threads; milliseconds: loading, to the first answer, a call")
                for each in engines:
                    line = " | ".join(map(summary, found[each].values()))
                    ours = statistics.median(found["graphc, C"]["call"])
                    ratio = statistics.median(found[each]["call"]) / ours
                    print(f"| {each} | {line} | {ratio:.2f}x |", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
