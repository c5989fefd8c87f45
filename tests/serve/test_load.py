"""A process under load: SIGTERM loses nothing accepted, and no row reaches another client."""

import http.client
import json
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
from graphc.export import load
from tests.serve.client import Reply, arrays_of, binary
from tests.serve.process import in_process

pytestmark = pytest.mark.slow


class Clients:
    """Threads that ask until the server is gone, each with a row of its own, and check it."""

    def __init__(self, port: int, count: int, want: np.ndarray, rows: np.ndarray) -> None:
        self.port, self.want, self.rows = port, want, rows
        self.answers, self.wrong, self.broken = 0, 0, 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(count)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for thread in self._threads:
            thread.join(60)

    def _work(self, number: int) -> None:
        body, headers = binary(
            {"input": self.rows[number : number + 1]}, parameters={"binary_data_output": True}
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while True:
            try:
                connection.request("POST", "/v2/models/mlp/infer", body, headers)
                answer = connection.getresponse()
                found = {k.lower(): v for k, v in answer.getheaders()}
                reply = Reply(answer.status, found, answer.read())
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException):  # gone before it was accepted
                with self._lock:
                    self.broken += 1
                connection.close()
                continue
            right = reply.status == 200 and np.allclose(
                arrays_of(reply)["output"][0], self.want[number], rtol=1e-5, atol=1e-6
            )
            with self._lock:
                self.answers += 1
                self.wrong += not right


def test_sigterm_under_load(folder: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    want = load(folder / "mlp.gcx")(torch.from_numpy(rows)).numpy()
    with in_process(folder / "mlp.gcx", "--quiet", "--linger", "0.3") as (process, port, lines):
        clients = Clients(port, 16, want, rows)
        with clients:
            time.sleep(2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    stopped = next(line for line in lines if "stopped" in line)
    accepted, answered = (int(word) for word in stopped.split() if word.isdigit())
    print(f"{clients.answers} answers, {clients.broken} not accepted; {stopped}")
    assert clients.wrong == 0 and accepted == answered
    health = answered - clients.answers  # of whoever waited until it was ready
    assert clients.answers > 200 and 1 <= health <= 200


def test_sigterm_counts_each_answer(folder: Path) -> None:
    """The same from the first request on: what the server has answered, clients have got."""
    rows = np.ones((8, 4), np.float32)
    want = load(folder / "mlp.gcx")(torch.from_numpy(rows)).numpy()
    with in_process(folder / "mlp.gcx", "--quiet") as (process, port, lines):
        before = _answered(port)
        clients = Clients(port, 8, want, rows)
        with clients:
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    stopped = next(line for line in lines if "stopped" in line)
    accepted, answered = (int(word) for word in stopped.split() if word.isdigit())
    assert accepted == answered == before + clients.answers


def _answered(port: int) -> int:
    """How many requests the server has answered, this one included."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line for line in text.splitlines() if line.startswith("graphc_http_requests_total")]
    return sum(int(float(line.split()[-1])) for line in lines) + 1


def test_bits_by_batch_size_and_exact(folder: Path) -> None:
    """--exact: the same bytes, alone and among sixteen."""
    rows = np.random.default_rng(1).standard_normal((16, 4)).astype(np.float32)
    with in_process(folder / "mlp.gcx", "--quiet", "--exact") as (_, port, _lines):
        def answer(number: int) -> bytes:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            body = json.dumps({"inputs": [{
                "name": "input", "datatype": "FP32", "shape": [1, 4],
                "data": rows[number].tolist(),
            }]})
            connection.request("POST", "/v2/models/mlp/infer", body)
            found = connection.getresponse().read()
            connection.close()
            return found

        alone = [answer(number) for number in range(16)]
        together: dict[int, bytes] = {}
        for _ in range(5):
            threads = [
                threading.Thread(target=lambda n=n: together.__setitem__(n, answer(n)))
                for n in range(16)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [together[number] for number in range(16)] == alone
