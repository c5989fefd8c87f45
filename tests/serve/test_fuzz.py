"""Thousands of bodies that nobody should send: each has a clear answer, and the server lives on."""

import gzip
import json
import random
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.serve.settings import Settings
from tests.serve.client import Client, binary, request
from tests.serve.process import ask, in_thread

pytestmark = pytest.mark.slow
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**400, 1.5, -0.0, 1e308, 1e-320, "",
    "x", "input", "FP32", "BYTES", "\x00", "\ud7ff", [], {}, [[]], [None], {"": None}, [[[[]]]],
    float("nan"), float("inf"), [1, [2]], {"binary_data_size": -1}, {"binary_data_size": 1e9},
    {"binary_data_size": 32}, list(range(50)), [[1.0] * 4] * 2, "9" * 5000,
]


def mutated(chance: random.Random, value: Any, depth: int = 0) -> Any:
    """A document with something in it changed."""
    if chance.random() < 0.12 + 0.05 * depth:
        return chance.choice(ODD)
    if isinstance(value, dict):
        kept = [(k, v) for k, v in value.items() if chance.random() < 0.96]
        return {
            k if chance.random() < 0.97 else chance.choice(["", "x", "data", "shape"]):
            mutated(chance, v, depth + 1) for k, v in kept
        }
    if isinstance(value, list):
        made = [mutated(chance, v, depth + 1) for v in value if chance.random() < 0.97]
        return made * chance.choice([1, 1, 1, 1, 2, 0]) if depth else made
    return value


def damaged(chance: random.Random, body: bytes) -> bytes:
    """Bytes changed, lost, doubled or put in."""
    found = bytearray(body)
    for _ in range(chance.choice([1, 1, 2, 5, 40])):
        place = chance.randrange(len(found) + 1) if found else 0
        kind = chance.randrange(4)
        if kind == 0 and place < len(found):
            found[place] = chance.randrange(256)
        elif kind == 1:
            del found[place : place + chance.randrange(20)]
        elif kind == 2:
            odd = [b"[", b"{", b'"', b"\\", b"1e999", b"NaN", b"," * 9]
            found[place:place] = chance.choice(odd)
        else:
            found[place:place] = found[place : place + 30]
    return bytes(found)


def bodies(seed: int) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """(path, body, headers), without end."""
    chance = random.Random(seed)
    plain = request({"input": X}, id="a", outputs=[{"name": "output"}])
    data, headers = binary({"input": X}, parameters={"binary_data_output": True})
    made: list[Callable[[], tuple[bytes, dict[str, str]]]] = [
        lambda: (json.dumps(mutated(chance, plain)).encode(), {}),
        lambda: (damaged(chance, json.dumps(plain).encode()), {}),
        lambda: (damaged(chance, data), headers),
        lambda: (data, {"Inference-Header-Content-Length": str(chance.choice(
            [-1, 0, 1, 5, len(data) - 32, len(data), len(data) + 1, 10**18, "", "x", "0x10"]))}),
        lambda: (damaged(chance, gzip.compress(data)), {**headers, "Content-Encoding": "gzip"}),
        lambda: (damaged(chance, zlib.compress(data)), {**headers, "Content-Encoding": "deflate"}),
        lambda: (chance.randbytes(chance.randrange(300)), {}),
        lambda: (b"[" * chance.randrange(1, 99999), {}),
        lambda: (b'{"inputs":[{"data":' + b"1," * chance.randrange(40000) + b"]}", {}),
        lambda: (json.dumps(mutated(chance, X.tolist())).encode(), {}),
    ]
    paths = ["/v2/models/mlp/infer"] * 4 + ["/predictions/mlp", "/v2/repository/index",
                                           "/v2/models/several/infer", "/v2/models/lookup/infer"]
    while True:
        body, extra = chance.choice(made)()
        yield chance.choice(paths), body, extra


def test_bodies(folder: Path) -> None:
    models = {name: folder / f"{name}.gcx" for name in ("mlp", "several", "lookup")}
    seen: Counter[int] = Counter()
    with Client(Settings(max_body=1 << 20, max_json=1 << 19), models) as client:
        for number, (path, body, headers) in zip(range(6000), bodies(3), strict=False):
            reply = client.ask("POST", path, body, headers)
            seen[reply.status] += 1
            assert reply.status in (200, 400, 413, 415, 422), (number, path, body[:300], reply)
            if reply.status != 200:
                assert 10 < len(reply.error) < 600, reply
        assert client.state.memory.taken == 0 and client.app.in_flight == 0
        assert client.infer("mlp", {"input": X}).status == 200
    print(dict(seen))
    assert seen[400] > 3000 and seen[200] > 100


def test_sockets(folder: Path) -> None:
    """The same through a socket, where lengths lie and connections end in the middle."""
    chance = random.Random(5)
    settings = Settings(port=0, header_seconds=0.5, read_seconds=0.5, max_body=1 << 20,
                        log_requests=False)
    with in_thread(settings, {"mlp": folder / "mlp.gcx"}) as server:
        for _, (path, body, headers) in zip(range(1500), bodies(7), strict=False):
            length = len(body) + chance.choice([0, 0, 0, 0, 5, -3, 10**9])
            head = f"POST {path.replace('several', 'mlp')} HTTP/1.1\r\nHost: x\r\n"
            head += "".join(f"{k}: {v}\r\n" for k, v in headers.items())
            raw = damaged(chance, head.encode()) if chance.random() < 0.2 else head.encode()
            raw += f"Content-Length: {max(length, 0)}\r\n\r\n".encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as connection:
                try:
                    connection.sendall(raw + body)
                    reply = connection.recv(4096)
                    assert not reply or reply.split()[1] != b"500", (raw, body[:200], reply)
                except OSError:
                    pass
        assert ask(server.port, "GET", "/v2/health/ready")[0] == 200
        assert ask(server.port, "POST", "/v2/models/mlp/infer", request({"input": X}))[0] == 200
