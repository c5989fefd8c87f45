"""What is computed together, what alone, and who pays for a request that fails."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import load
from graphc.serve.settings import Settings
from tests.serve.client import Client, arrays_of, request

X = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)


class Held:
    """A model whose calls are noted, and wait until they are let go."""

    def __init__(self, client: Client, name: str) -> None:
        self.served = client.state.registry.find(name)
        self.go, self.entered = threading.Event(), threading.Event()
        self.rows: list[list[int]] = []
        self._run = self.served.model.run
        self.served.model.run = self._noted  # type: ignore[method-assign]

    def _noted(self, requests: Any) -> Any:
        self.entered.set()
        assert self.go.wait(10)
        self.rows.append([request.rows for request in requests])
        return self._run(requests)


def held(
    client: Client, name: str, bodies: list[Any], seconds: float = 0.03
) -> tuple[list[Any], list[list[int]]]:
    """The answers to requests, and the calls: the first is being computed when the others come."""
    hold = Held(client, name)

    async def together() -> list[Any]:
        tasks = []
        for body in bodies:
            asking = client.asking("POST", f"/v2/models/{name}/infer", body)
            tasks.append(asyncio.create_task(asking))
            if len(tasks) == 1:
                await asyncio.to_thread(hold.entered.wait, 10)
        await asyncio.sleep(seconds)
        hold.go.set()
        return await asyncio.gather(*tasks)

    try:
        return client.loop.run_until_complete(together()), hold.rows
    finally:
        hold.served.model.run = hold._run  # type: ignore[method-assign]


@pytest.fixture
def small(folder: Path) -> Iterator[Client]:
    settings = Settings(max_batch=8, max_queue=20)
    with Client(settings, {n: folder / f"{n}.gcx" for n in ("mlp", "lookup", "centred")}) as made:
        yield made


def test_rows_of_several_requests_are_one_call(small: Client, folder: Path) -> None:
    sizes = [1, 2, 1, 3, 1, 5, 9, 1]
    parts = np.split(X[: sum(sizes)], np.cumsum(sizes)[:-1])
    replies, calls = held(small, "mlp", [request({"input": part}) for part in parts])
    program = load(folder / "mlp.gcx")
    for part, reply in zip(parts, replies, strict=True):
        want = program(torch.from_numpy(np.concatenate([part, part]))).numpy()[: len(part)]
        np.testing.assert_allclose(arrays_of(reply)["output"], want, rtol=1e-5, atol=1e-6)
    assert sorted(itertools.chain(*calls)) == sorted(sizes) and calls[0] == [1]
    assert all(sum(call) <= 8 or len(call) == 1 for call in calls)
    assert len(calls) <= 5
    assert any('batch;desc="5 requests' in reply.headers["server-timing"] for reply in replies)


def test_dependent_rows_are_computed_alone(small: Client, folder: Path) -> None:
    parts = np.split(X[:9], 3)
    replies, calls = held(small, "centred", [request({"x": part}) for part in parts])
    assert calls == [[3], [3], [3]]
    for part, reply in zip(parts, replies, strict=True):
        want = load(folder / "centred.gcx")(torch.from_numpy(part)).numpy()
        np.testing.assert_array_equal(arrays_of(reply)["output"], want)


def test_only_the_guilty_request_fails(small: Client) -> None:
    ids = [np.array([[1, 2, row]]) for row in (3, 4, 99, 5)]
    replies, calls = held(small, "lookup", [request({"ids": part}) for part in ids])
    assert [reply.status for reply in replies] == [200, 200, 400, 200]
    assert "cannot take these values" in replies[2].error
    assert calls == [[1], [1, 1, 1], [1], [1], [1]]
    table = small.state.registry.find("lookup").model.program.state_dict["table.weight"].numpy()
    for part, reply in zip(ids, replies, strict=True):
        if reply.status == 200:
            np.testing.assert_allclose(arrays_of(reply)["output"][0], table[part[0]].sum(0),
                                       rtol=1e-5, atol=1e-6)
    assert b'graphc_failed_batches_total{model="lookup",version="1"} 1.0' in (
        small.ask("GET", "/metrics").body)


def test_exact_computes_each_by_itself(folder: Path) -> None:
    alone = {}
    with Client(Settings(exact=True), {"mlp": folder / "mlp.gcx"}) as client:
        bodies = [request({"input": X[i : i + 1]}) for i in range(6)]
        alone = [arrays_of(client.ask("POST", "/v2/models/mlp/infer", body))["output"]
                 for body in bodies]
        replies, calls = held(client, "mlp", bodies)
    assert calls == [[1]] * 6
    for want, reply in zip(alone, replies, strict=True):
        np.testing.assert_array_equal(arrays_of(reply)["output"], want)


def test_a_delay_lets_others_join(folder: Path) -> None:
    settings = Settings(max_delay=20.0, max_batch=4)
    with Client(settings, {"mlp": folder / "mlp.gcx"}) as client:
        bodies = [request({"input": X[i : i + 1]}) for i in range(4)]
        replies = client.all(*(("POST", "/v2/models/mlp/infer", body) for body in bodies))
        assert all("4 requests, 4 rows" in reply.headers["server-timing"] for reply in replies)


def test_a_full_queue(small: Client) -> None:
    replies, _ = held(small, "mlp", [request({"input": X[:1]})] * 30)
    refused = [reply for reply in replies if reply.status == 503]
    assert len(refused) == 9
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    assert sum(reply.status == 200 for reply in replies) == 30 - len(refused)


def test_other_lengths_do_not_share_a_batch(tmp_path: Path) -> None:
    from graphc.export import export

    free = {0: "batch", 1: "length"}
    export(lambda x: x.cumsum(1), (torch.ones(2, 3),), dynamic_shapes=(free,)).save(
        tmp_path / "sums.gcx")
    parts = [np.ones((1, length), np.float32) for length in (3, 5, 3, 5, 4, 3)]
    with Client(Settings(), {"sums": tmp_path / "sums.gcx"}) as client:
        replies, calls = held(client, "sums", [request({"x": part}) for part in parts])
    assert calls == [[1], [1, 1], [1, 1], [1]]
    for part, reply in zip(parts, replies, strict=True):
        np.testing.assert_array_equal(arrays_of(reply)["output"], part.cumsum(1))


def test_a_batch_is_no_larger_than_the_program_takes(tmp_path: Path) -> None:
    from graphc.export import Dim, export

    free = {0: Dim("batch", max=3)}
    export(lambda x: x * 2, (torch.ones(2, 3),), dynamic_shapes=(free,)).save(tmp_path / "m.gcx")
    with Client(Settings(), {"m": tmp_path / "m.gcx"}) as client:
        replies, calls = held(client, "m", [request({"x": X[i : i + 1, :3]}) for i in range(7)])
        assert client.infer("m", {"x": X[:4, :3]}).status == 400
    assert all(reply.status == 200 for reply in replies)
    assert calls == [[1], [1, 1, 1], [1, 1, 1]]


def test_a_model_is_loaded_again_under_requests(folder: Path) -> None:
    """Who has found the old one in the meantime is answered by the new one."""
    with Client(Settings(), {"mlp": folder / "mlp.gcx"}) as client:
        registry, body = client.state.registry, request({"input": X[:2]})
        want = client.ask("POST", "/v2/models/mlp/infer", body).body
        before = registry.find("mlp")
        registry.add(folder / "mlp.gcx", "mlp", "1")
        assert registry.find("mlp") is not before and before.state == "UNLOADING"
        find = registry.ready
        found = iter([before])
        registry.ready = lambda *name: next(found, None) or find(*name)  # type: ignore[method-assign]
        assert client.ask("POST", "/v2/models/mlp/infer", body).body == want
        registry.remove("mlp")
        found = iter([before])
        assert client.ask("POST", "/v2/models/mlp/infer", body).status == 404
