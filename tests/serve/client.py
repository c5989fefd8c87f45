"""Requests to the application itself, without a socket: an event loop and a server of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.serve.app import application
from graphc.serve.settings import Settings
from graphc.serve.state import State


class Reply(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        found = self.json
        return str(found["error"] if "error" in found else found["message"])


class Client:
    """A server with these models (name, or name@version, to a file), and who asks it."""

    def __init__(self, settings: Settings, models: Mapping[str, Path]) -> None:
        self.loop = asyncio.new_event_loop()
        self.state = State(settings)
        self.app = application(self.state)
        for name, path in models.items():
            name, _, version = name.partition("@")
            self.state.registry.finish(self.state.registry.add(path, name, version or "1"))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.state.registry.close()
        for served in self.state.registry.all():
            assert served.batcher.join(10)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def ask(
        self, method: str, path: str, body: bytes | Sequence[bytes] | Any = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request. `body`: bytes, pieces of them, or what is sent as JSON."""
        return self.loop.run_until_complete(self.asking(method, path, body, headers))

    def all(self, *requests: tuple[Any, ...]) -> list[Reply]:
        """Requests at the same time."""
        async def together() -> list[Reply]:
            return await asyncio.gather(*(self.asking(*request) for request in requests))

        return self.loop.run_until_complete(together())

    async def asking(
        self, method: str, path: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request, on the loop."""
        if isinstance(body, (dict, str)) or (
            isinstance(body, list) and not all(isinstance(part, bytes) for part in body)
        ):
            body = json.dumps(body).encode()
        parts = [body] if isinstance(body, bytes) else list(body)
        path, _, query = path.partition("?")
        fields = {"host": "localhost", **(headers or {})}
        if isinstance(body, bytes) and "content-length" not in fields:
            fields["content-length"] = str(len(body))
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in fields.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }
        messages = [
            {"type": "http.request", "body": part, "more_body": i + 1 < len(parts)}
            for i, part in enumerate(parts)
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], found, b"".join(m.get("body", b"") for m in sent[1:]))

    def infer(self, model: str, arrays: Mapping[str, Any], **more: Any) -> Reply:
        """One request by JSON of the Open Inference Protocol."""
        return self.ask("POST", f"/v2/models/{model}/infer", request(arrays, **more))


DATATYPES = {
    "float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16", "int64": "INT64",
    "int32": "INT32", "bool": "BOOL",
}


def tensor(name: str, array: np.ndarray, **more: Any) -> dict[str, Any]:
    """A tensor of a request, without its data."""
    return {"name": name, "datatype": DATATYPES[str(array.dtype)], "shape": list(array.shape),
            **more}


def request(arrays: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A request whose tensors are JSON."""
    return {"inputs": [
        tensor(name, array, data=np.asarray(array).reshape(-1).tolist())
        for name, array in arrays.items()
    ], **more}


def binary(arrays: Mapping[str, np.ndarray], **more: Any) -> tuple[bytes, dict[str, str]]:
    """(body, headers) of a request whose tensors are bytes."""
    head = json.dumps({"inputs": [
        tensor(name, array, parameters={"binary_data_size": array.nbytes})
        for name, array in arrays.items()
    ], **more}).encode()
    body = head + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    return body, {"Inference-Header-Content-Length": str(len(head))}


def arrays_of(reply: Reply) -> dict[str, np.ndarray]:
    """The tensors of an answer, JSON or bytes."""
    import ml_dtypes

    kinds = {datatype: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
             for name, datatype in DATATYPES.items()}
    length = int(reply.headers.get("inference-header-content-length", len(reply.body)))
    head, rest = json.loads(reply.body[:length]), reply.body[length:]
    found = {}
    for output in head["outputs"]:
        dtype = kinds[output["datatype"]]
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            array = np.array(output["data"], dtype)
        else:
            array, rest = np.frombuffer(rest[:size], dtype), rest[size:]
        found[output["name"]] = array.reshape(output["shape"])
    assert not rest
    return found
