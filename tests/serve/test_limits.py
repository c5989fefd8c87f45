"""What is too large, too deep, too slow or too much is refused before it costs anything."""

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.serve.bodies import Memory
from graphc.serve.settings import Settings
from tests.serve.client import Client, binary, request

X = np.ones((2, 4), np.float32)
INFER = "/v2/models/mlp/infer"


def test_a_body_that_says_it_is_large_is_not_read(client: Client) -> None:
    reply = client.ask("POST", INFER, b"{}", {"content-length": str(1 << 40)})
    assert reply.status == 413 and "the limit is 1048576" in reply.error
    assert reply.headers["connection"] == "close"
    assert client.state.memory.taken == 0


def test_a_body_that_becomes_large(client: Client) -> None:
    reply = client.ask("POST", INFER, [b"x" * 300_000] * 5)
    assert reply.status == 413 and "more than 1048576 bytes" in reply.error
    assert client.state.memory.taken == 0


@pytest.mark.parametrize("length", ["abc", "-5", "1" * 40, "1.5"])
def test_lengths_that_are_none(client: Client, length: str) -> None:
    assert client.ask("POST", INFER, b"{}", {"content-length": length}).status == 400


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bombs(client: Client, encoding: str) -> None:
    packer = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = packer(b" " * (20 << 20))
    assert len(bomb) < 100_000
    reply = client.ask("POST", INFER, bomb, {"Content-Encoding": encoding})
    assert reply.status == 413 and "when unpacked" in reply.error
    assert client.state.memory.taken == 0


@pytest.mark.parametrize("body, encoding, status, words", [
    (gzip.compress(b"{}", mtime=0)[:-3], "gzip", 400, "ends too early"),
    (gzip.compress(b"{}", mtime=0) + b"more", "gzip", 400, "behind the end"),
    (b"no gzip", "gzip", 400, "cannot be unpacked"),
    (b"no deflate", "deflate", 400, "cannot be unpacked"),
    (b"{}", "br", 415, "'br'"), (b"{}", "gzip, gzip", 415, "Cure"),
])
def test_packed_bodies_that_are_broken(
    client: Client, body: bytes, encoding: str, status: int, words: str
) -> None:
    reply = client.ask("POST", INFER, body, {"Content-Encoding": encoding})
    assert reply.status == status and words in reply.error


def test_raw_deflate(client: Client) -> None:
    packer = zlib.compressobj(wbits=-15)
    body = packer.compress(json.dumps(request({"input": X})).encode()) + packer.flush()
    assert client.ask("POST", INFER, body, {"Content-Encoding": "deflate"}).status == 200


def test_json_has_a_limit_of_its_own(client: Client) -> None:
    reply = client.ask("POST", INFER, b" " * (1 << 19) + b"{}")
    assert reply.status == 413 and "binary data" in reply.error
    quotes = b'{"inputs":[' + b'"",' * 30_000 + b'""]}'
    reply = client.ask("POST", INFER, quotes)
    assert reply.status == 413 and "quotes" in reply.error


def test_memory_of_all_bodies(folder: Path) -> None:
    body, headers = binary({"input": np.ones((4000, 4), np.float32)})
    with Client(Settings(max_memory=100_000), {"mlp": folder / "mlp.gcx"}) as client:
        assert client.ask("POST", INFER, body, headers).status == 200
        replies = client.all(*[("POST", INFER, body, headers)] * 3)
        assert sorted(reply.status for reply in replies) == [200, 503, 503]
        assert client.state.memory.taken == 0


def test_a_share_is_given_back_once() -> None:
    from graphc.serve.bodies import share

    memory = Memory(10)
    with share(memory) as mine:
        mine.grow(7)
        mine.shrink(3)
        assert memory.taken == 4
    assert memory.taken == 0


def test_too_many_at_a_time(folder: Path) -> None:
    with Client(Settings(max_concurrency=3), {"mlp": folder / "mlp.gcx"}) as client:
        body = request({"input": X})
        replies = client.all(*[("POST", INFER, body)] * 8, ("GET", "/ping"), ("GET", "/metrics"))
        assert [reply.status for reply in replies[:8]].count(503) == 5
        assert all(reply.status == 200 for reply in replies[8:])
        refused = next(reply for reply in replies if reply.status == 503)
        assert refused.headers["retry-after"] == "1"
        assert client.app.in_flight == 0


def test_a_body_that_never_comes(folder: Path) -> None:
    settings = Settings(read_seconds=0.05)
    with Client(settings, {"mlp": folder / "mlp.gcx"}) as client:
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(10)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": INFER, "query_string": b"", "root_path": "",
            "headers": [], "scheme": "http", "http_version": "1.1", "client": None, "server": None,
        }
        client.loop.run_until_complete(client.app(scope, receive, send))
        assert sent[0]["status"] == 408 and (b"connection", b"close") in [
            (name.lower(), value) for name, value in sent[0]["headers"]]


def test_a_request_that_waits_too_long(folder: Path) -> None:
    from tests.serve.test_batching import held

    with Client(Settings(wait_seconds=0.3), {"mlp": folder / "mlp.gcx"}) as client:
        replies, calls = held(client, "mlp", [request({"input": X})] * 3, 0.4)
        assert [reply.status for reply in replies] == [200, 503, 503] and len(calls) == 1
        assert "waited too long" in replies[1].error


def test_ids_and_logs_hold_no_line_of_a_clients(client: Client, caplog: Any) -> None:
    caplog.set_level("INFO", logger="graphc.serve.access")
    reply = client.ask("GET", "/v2/a\nb", b"", {"x-request-id": "mine-7"})
    assert reply.status == 404 and reply.headers["x-request-id"] == "mine-7"
    reply = client.ask("GET", "/ping", b"", {"x-request-id": "two words\r\n"})
    assert reply.headers["x-request-id"].startswith("r")
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert "'/v2/a\\nb' 404" in caplog.text


def test_metrics_have_few_labels(client: Client) -> None:
    for number in range(5):
        client.ask("GET", f"/nothing/{number}")
    text = client.ask("GET", "/metrics").body.decode()
    assert "graphc_ready 1.0" in text and "/nothing" not in text
    assert 'graphc_http_requests_total{endpoint="none",status="404"}' in text
