"""Requests a second, and how long they take, at 1, 8 and 64 clients: `graphc serve`, with and
without batches, and other servers. Clients are a process of their own, by raw sockets.

    python -m benchmarks.serve graphc                      # starts the servers itself
    python -m benchmarks.serve url http://127.0.0.1:9000/predict --json   # a server that is there

`--also NAME COMMAND` adds a server; @GCX in it is the file of the model (see serve_onnx.py).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

ROOT = Path(__file__).parents[1]
SIZES = (784, 512, 512, 10)  # of a perceptron's layers


def export_model(folder: Path) -> Path:
    """The perceptron that all servers serve."""
    import graphc as torch
    import graphc.nn as nn
    from graphc.export import export

    torch.manual_seed(0)
    layers: list[Any] = []
    for rows, columns in itertools.pairwise(SIZES):
        layers += [nn.Linear(rows, columns), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).eval()
    path = folder / "mlp.gcx"
    export(model, (torch.randn(2, SIZES[0]),), dynamic_shapes=({0: "batch"},)).save(path)
    np.savez(folder / "mlp.npz", **{k: v.numpy() for k, v in model.state_dict().items()})
    return path


# --- clients -----------------------------------------------------------------------------------


def message(url: str, as_json: bool) -> bytes:
    """One request: a row, by the protocol's bytes or as plain JSON."""
    parts = urlsplit(url)
    row = np.random.default_rng(0).standard_normal((1, SIZES[0])).astype(np.float32)
    extra = ""
    if as_json:
        body = json.dumps({"input": row.round(4).tolist()}).encode()
    else:
        head = json.dumps({
            "inputs": [{"name": "input", "datatype": "FP32", "shape": [1, SIZES[0]],
                        "parameters": {"binary_data_size": row.nbytes}}],
            "parameters": {"binary_data_output": True},
        }).encode()
        body = head + row.tobytes()
        extra = f"Inference-Header-Content-Length: {len(head)}\r\n"
    return (
        f"POST {parts.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{extra}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def measure(
    url: str, clients: int, seconds: float, as_json: bool
) -> tuple[float, list[float]]:
    """(requests a second, seconds of each)."""
    parts, data = urlsplit(url), message(url, as_json)
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(line for line in head.lower().split(b"\r\n")
                          if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return len(times) / seconds, times


def report(name: str, url: str, seconds: float, as_json: bool) -> None:
    for clients in (1, 8, 64):
        asyncio.run(measure(url, clients, 0.5, as_json))  # warm
        rate, times = asyncio.run(measure(url, clients, seconds, as_json))
        p50, p99 = np.percentile(times, [50, 99]) * 1e3
        print(f"{name:28} {clients:3} clients {rate:8.0f} requests/s  p50 {p50:7.2f} ms  "
              f"p99 {p99:7.2f} ms", flush=True)


# --- servers -----------------------------------------------------------------------------------


def started(command: list[str]) -> tuple[subprocess.Popen[str], int]:
    """A server that says "listens on ...:PORT", once it is ready."""
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    port = 0
    for line in process.stderr:
        if "listens on" in line:
            port = int(line.rsplit(":", 1)[1])
        if "is ready" in line:
            break
    return process, port


def compare(seconds: float, as_json: bool, extra: list[tuple[str, list[str]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = export_model(Path(folder))
        serve = [sys.executable, "-m", "graphc", "serve", str(path), "--port", "0", "--quiet"]
        runs = [("graphc, batches", serve), ("graphc, --exact", [*serve, "--exact"])]
        runs += [(name, [word.replace("@GCX", str(path)) for word in words])
                 for name, words in extra]
        for name, command in runs:
            process, port = started(command)
            try:
                tail = "predictions/mlp" if as_json else "v2/models/mlp/infer"
                report(name, f"http://127.0.0.1:{port}/{tail}", seconds, as_json)
            finally:
                process.terminate()
                process.communicate(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["graphc", "url"])
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--also", nargs=2, action="append", default=[], metavar=("NAME", "COMMAND"))
    args = parser.parse_args()
    if args.what == "url":
        report(args.url, args.url, args.seconds, args.json)
    else:
        compare(args.seconds, args.json, [(name, text.split()) for name, text in args.also])


if __name__ == "__main__":
    main()
