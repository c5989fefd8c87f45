"""What a server computes of arrays is what the program gives for Tensors, however it is called."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import Dim, export, load
from graphc.serve.model import Model
from graphc.serve.settings import Settings
from graphc.serve.threads import in_thread
from tests.serve.client import Client, request
from tests.serve.test_batching import Held


class Kinds(torch.nn.Module):
    """Every kind of result: computed, an argument, a weight, a size, a number, a text."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x: Any, *, scale: float) -> Any:
        return {"y": x * self.weight * scale, "x": x, "w": self.weight, "n": x.shape[0] + 1,
                "two": 2, "name": "kinds", "none": None, "parts": (x.sum(1), x > 0)}


@pytest.mark.parametrize("rows", [[1], [2], [1, 1], [3, 1, 2]])
def test_every_kind_of_result(rows: list[int], tmp_path: Path) -> None:
    module, path = Kinds().eval(), tmp_path / "kinds.gcx"
    export(module, (torch.randn(2, 3),), {"scale": 2.0}, dynamic_shapes={
        "x": {0: "batch"}, "scale": None}).save(path)
    model, program = Model.of_file(path, "kinds", "1"), load(path)
    assert model.together and model._simple
    parts = [np.random.default_rng(n).standard_normal((n, 3)).astype("f4") for n in rows]
    found = model.run([model.arguments({0: part}) for part in parts])
    names = [spec.name for spec in model.outputs]
    assert names == ["y", "x", "w", "n", "two", "parts.0", "parts.1"]
    for part, results in zip(parts, found, strict=True):
        want = program(torch.from_numpy(part), scale=2.0)
        flat = [want["y"], want["x"], want["w"], want["n"], want["two"], *want["parts"]]
        for result, each in zip(results, flat, strict=True):
            expected = each.numpy() if isinstance(each, torch.Tensor) else np.array([each])
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_size_that_follows_another_is_checked(tmp_path: Path) -> None:
    path, n = tmp_path / "twice.gcx", Dim("n", min=2)
    export(lambda x, y: (x + 1, y * 2), (torch.ones(2), torch.ones(4)),
           dynamic_shapes=({0: n}, {0: 2 * n})).save(path)
    model = Model.of_file(path, "twice", "1")
    assert not model._simple  # the program asks for more than shapes that fit one by one
    ones = {size: np.ones(size, "f4") for size in (3, 5, 6)}
    assert model.run([model.arguments({0: ones[3], 1: ones[6]})])[0][1].sum() == 12
    with pytest.raises(ValueError, match="5"):
        model.run([model.arguments({0: ones[3], 1: ones[5]})])


def test_metrics_of_what_is_there(folder: Path) -> None:
    with Client(Settings(), {"mlp": folder / "mlp.gcx"}) as client:
        hold = Held(client, "mlp")
        body = request({"input": np.zeros((1, 4), "f4")})

        async def asked() -> str:
            tasks = []
            for _ in range(4):
                asking = client.asking("POST", "/v2/models/mlp/infer", body)
                tasks.append(asyncio.create_task(asking))
                await asyncio.to_thread(hold.entered.wait, 10)  # the first is alone
            text = (await client.asking("GET", "/metrics", b"")).body.decode()
            hold.go.set()
            await asyncio.gather(*tasks)
            return text

        text = client.loop.run_until_complete(asked())
        assert "graphc_http_requests_in_flight 5.0" in text
        assert 'graphc_queue_requests{model="mlp",version="1"} 3.0' in text
        text = client.ask("GET", "/metrics").body.decode()
        assert 'graphc_queue_requests{model="mlp",version="1"} 0.0' in text
        assert 'graphc_http_requests_total{endpoint="oip_infer",status="200"} 4.0' in text


def test_the_event_loop_asks_for_its_turn_while_threads_work() -> None:
    usual = sys.getswitchinterval()
    go = threading.Event()

    async def work() -> list[float]:
        first = asyncio.create_task(in_thread(lambda: go.wait(10)))
        second = await in_thread(sys.getswitchinterval)
        between = sys.getswitchinterval()  # the first is still there
        go.set()
        await first
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 / 0)
        return [second, between, sys.getswitchinterval()]

    assert asyncio.run(work()) == pytest.approx([0.0005, 0.0005, usual])
