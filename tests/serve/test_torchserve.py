"""TorchServe's calls: predictions as lists and as .npy files, of batches and of one sample."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import load
from tests.serve.client import Client

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
NPY = {"Content-Type": "application/x-npy"}


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def want(folder: Path) -> np.ndarray:
    return load(folder / "mlp.gcx")(torch.from_numpy(X)).numpy()


def test_lists_in_and_out(client: Client, want: np.ndarray) -> None:
    for path in ("/predictions/mlp", "/predictions/mlp/1"):
        for body in (X.tolist(), {"input": X.tolist()}):
            reply = client.ask("POST", path, body)
            assert reply.status == 200, reply
            np.testing.assert_array_equal(np.float32(reply.json), want)
    one = client.ask("PUT", "/predictions/mlp", X[1].tolist()).json
    np.testing.assert_allclose(one, want[1], rtol=1e-6)


def test_arrays_in_and_out(client: Client, want: np.ndarray) -> None:
    for array in (X, np.asfortranarray(X)):
        reply = client.ask("POST", "/predictions/mlp", npy(array),
                           {"Accept": "application/x-npy"})
        np.testing.assert_array_equal(np.load(io.BytesIO(reply.body)), want)
    reply = client.ask("POST", "/predictions/mlp", npy(X[0]), NPY)
    np.testing.assert_allclose(reply.json, want[0], rtol=1e-6)


def test_long_lists(client: Client, folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3000, 4)).astype(np.float32)
    want = load(folder / "mlp.gcx")(torch.from_numpy(x)).numpy()
    reply = client.ask("POST", "/predictions/mlp", x.tolist())
    np.testing.assert_allclose(reply.json, want, rtol=1e-6, atol=1e-7)


def test_several_inputs_and_results(client: Client) -> None:
    body: Any = {"x": [[1, 2]], "flags": [[True, False]], "scale": [[3]]}
    found = client.ask("POST", "/predictions/several", body).json
    assert found == {
        "y": [[3.0, -6.0]], "n": [1], "parts.0": [[True, False]], "parts.1": [[10, 20]]
    }
    one = {name: value[0] for name, value in body.items()}
    assert client.ask("POST", "/predictions/several", one).json["y"] == [3.0, -6.0]


@pytest.mark.parametrize("body, headers, status, words", [
    (b"", {}, 400, "empty"),
    (X[:, :3].tolist(), {}, 400, "takes ['batch', 4]"),
    ([[1, 2, 3, 4], [1, 2]], {}, 400, "not 8 numbers"),
    ({"y": [1]}, {}, 400, "has no input 'y'"),
    ("text", {}, 400, "has the shape []"),
    (b"{}", {}, 400, "also needs"),
    ([[[[1]]]], {}, 400, "shape [1, 1, 1, 1]"),
    (b"--x", {"Content-Type": "multipart/form-data; boundary=x"}, 415, "curl -T"),
    (npy(X.astype(np.float64)), {}, 400, "x.astype('float32')"),
    (npy(X)[:-1], {}, 400, "takes 48 bytes"),
    (npy(X)[:20], {}, 400, "not a .npy file"),
    (npy(np.array([{}], object)), {}, 400, "must be one of float32"),
    (npy(X).replace(b"(3, 4)", b"(3,-4)"), {}, 400, "shape (3, -4)"),
    (npy(X).replace(b"(3, 4), }     ", b"(9999999999,)}"), {}, 400, "bytes"),
    (b"nothing", NPY, 400, "not a .npy file"),
    ([[1, 2, 3, "4"]], {}, 400, "has '4' at 3"),
    ([[1, 2, 3, 1e300]], {}, 400, "which float32 does not have"),
])
def test_what_is_wrong(
    client: Client, body: Any, headers: dict[str, str], status: int, words: str
) -> None:
    reply = client.ask("POST", "/predictions/mlp", body, headers)
    assert (reply.status, words in reply.error) == (status, True), reply
    assert reply.json["code"] == status and reply.json["type"] == "BadRequestException"


def test_models_are_told(client: Client) -> None:
    assert client.ask("GET", "/ping").json == {"status": "Healthy"}
    models = client.ask("GET", "/models").json["models"]
    assert {"modelName": "mlp", "modelUrl": "mlp.gcx"} in models
    (found,) = client.ask("GET", "/models/centred").json
    assert found["batchSize"] == 1 and "holds the batch" in found["reason"]
    (found,) = client.ask("GET", "/models/mlp/1").json
    assert found["batchSize"] == 8 and found["status"] == "READY"
    assert client.ask("GET", "/models/none").json["type"] == "ModelNotFoundException"
