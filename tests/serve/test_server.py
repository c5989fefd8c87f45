"""A server with a socket: connections, slow clients, and a stop that loses nothing."""

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.__main__ import main
from graphc.serve import command
from graphc.serve.server import Server
from graphc.serve.settings import Settings
from tests.serve.client import request
from tests.serve.process import ask, in_thread, wait_for

X = np.ones((2, 4), np.float32)
INFER = "/v2/models/mlp/infer"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    settings = Settings(port=0, header_seconds=0.2, linger=0.0)
    with in_thread(settings, {"mlp": folder / "mlp.gcx"}) as found:
        yield found


def conversation(port: int, data: bytes, seconds: float = 5.0) -> bytes:
    """What comes back for some bytes, until the server closes or says nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except (TimeoutError, ConnectionError):
            pass
        return found


def test_requests_over_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    body = json.dumps(request({"input": X}))
    for _ in range(3):
        connection.request("POST", INFER, body)
        answer = connection.getresponse()
        assert answer.status == 200 and len(json.loads(answer.read())["outputs"][0]["data"]) == 6
    connection.request("POST", INFER, iter([body[:9].encode(), body[9:].encode()]))
    assert connection.getresponse().status == 200  # in chunks
    connection.close()


@pytest.mark.parametrize("data", [
    b"", b"GET / HTTP/1.1\r\nHost: x\r\nA: ",
])
def test_headers_that_never_end(server: Server, data: bytes) -> None:
    began = time.monotonic()
    assert conversation(server.port, data) == b""
    assert 0.1 < time.monotonic() - began < 10


def test_headers_that_are_too_long(server: Server) -> None:
    began = time.monotonic()
    conversation(server.port, b"GET / HTTP/1.1\r\n" + b"A: bbbbbbbbbbbbbbbbbbbbb\r\n" * 20_000)
    assert time.monotonic() - began < 10
    assert ask(server.port, "GET", "/v2/health/live")[0] == 200


@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\x00\x00\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nx",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b"\x00" * 100,
])
def test_what_is_no_http(server: Server, data: bytes) -> None:
    reply = conversation(server.port, data, 1.0)
    assert reply == b"" or reply.split()[1] in (b"400", b"404")
    assert ask(server.port, "GET", "/v2/health/live")[0] == 200


def test_a_large_body_is_told_so(server: Server) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
    reply = conversation(server.port, head + b"x" * 100_000)
    assert reply.split()[1] == b"413"


def test_a_stop_answers_what_was_accepted(folder: Path) -> None:
    settings = Settings(port=0, linger=60.0)
    statuses: list[Any] = []
    with in_thread(settings, {"mlp": folder / "mlp.gcx"}) as server:
        model = server.state.registry.find("mlp").model
        run, go = model.run, threading.Event()

        def slow(requests: Any) -> Any:
            assert go.wait(10)
            return run(requests)

        model.run = slow  # type: ignore[method-assign]
        body = request({"input": X})
        threads = [
            threading.Thread(target=lambda: statuses.append(ask(server.port, "POST", INFER, body)))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.application.in_flight == 6)
        server.stop()
        assert ask(server.port, "GET", "/v2/health/ready") == (503, {"ready": False})
        assert ask(server.port, "GET", "/v2/health/live")[0] == 200
        port = server.port
        server.handle_exit(signal.SIGTERM, None)  # the second: no more connections
        wait_for(lambda: not server.servers[0].sockets)
        go.set()
        for thread in threads:
            thread.join(10)
    assert [status for status, _ in statuses] == [200] * 6
    assert server.application.accepted == server.application.answered
    with pytest.raises(OSError):
        ask(port, "GET", "/v2/health/live")


def test_a_stop_does_not_wait_for_ever(folder: Path) -> None:
    settings = Settings(port=0, linger=0.0, drain=0.2)
    statuses: list[Any] = []
    with in_thread(settings, {"mlp": folder / "mlp.gcx"}) as server:
        model = server.state.registry.find("mlp").model
        run, go, entered = model.run, threading.Event(), threading.Event()

        def slow(requests: Any) -> Any:
            entered.set()
            assert go.wait(10)
            return run(requests)

        model.run = slow  # type: ignore[method-assign]
        threads = [threading.Thread(target=lambda: statuses.append(
            ask(server.port, "POST", INFER, request({"input": X})))) for _ in range(3)]
        for thread in threads:
            thread.start()
            assert entered.wait(10)  # the first is by itself
        wait_for(lambda: server.application.in_flight == 3)
        server.stop()
        wait_for(lambda: len(statuses) == 2)
        go.set()
        for thread in threads:
            thread.join(10)
    assert sorted(status for status, _ in statuses) == [200, 503, 503]


# --- the command -------------------------------------------------------------------------------


def test_models_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.model("a/m.gcx") == (Path("a/m.gcx"), "m", "1")
    assert command.model("x=a/m.gcx@3") == (Path("a/m.gcx"), "x", "3")
    assert command.model("m.gcx@1.2") == (Path("m.gcx"), "m", "1.2")
    for odd in ("a=b.gcx", "m@2.gcx", "c.gcx@4"):
        (tmp_path / odd).write_bytes(b"")
    assert command.model("a=b.gcx") == (Path("a=b.gcx"), "a=b", "1")
    assert command.model("m@2.gcx") == (Path("m@2.gcx"), "m", "2")
    assert command.model("c.gcx@4")[0] == Path("c.gcx@4")


def test_what_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.mar").write_bytes(b"PK")
    (tmp_path / "m.gcx").write_bytes(b"PK")
    (tmp_path / "short").write_text("short\n")
    for arguments, words in (
        ([], "nothing to serve"), (["--models", tmp_path / "none"], "is no folder"),
        ([tmp_path / "none.gcx"], "No such file"), ([tmp_path / "m.mar"], "TorchServe archive"),
        ([tmp_path / "m.gcx"], "cannot be loaded"),
        (["--models", tmp_path, "--token-file", tmp_path / "short"], "at least 16"),
        ([tmp_path / "m.gcx", "--token-file", tmp_path / "short"], "is for loading"),
    ):
        assert main(["serve", *map(str, arguments)]) == 2
        assert words in capsys.readouterr().err
    for wrong in (["--max-body", "0"], ["--max-batch", "0"], ["--max-delay", "-1"],
                  ["--max-body", "9X"]):
        with pytest.raises(SystemExit):
            main(["serve", "m.gcx", *wrong])
        assert "expected" in capsys.readouterr().err


def test_without_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    monkeypatch.setattr("importlib.import_module", missing)
    assert main(["serve", str(folder / "mlp.gcx")]) == 2
    assert "pip install 'graphc-compiler[serve]'" in capsys.readouterr().err
