"""Triton's own client talks to the server. Needs `pip install tritonclient[http]`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as torch
from graphc.export import load
from graphc.serve.settings import Settings
from tests.serve.process import in_thread

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def triton() -> Any:
    return pytest.importorskip("tritonclient.http")


@pytest.fixture(scope="module")
def client(triton: Any, folder: Path) -> Iterator[Any]:
    settings = Settings(port=0, folder=folder, token=TOKEN, linger=0.0)
    models = {name: folder / f"{name}.gcx" for name in ("mlp", "several", "halves")}
    with (
        in_thread(settings, models) as server,
        triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as made,
    ):
        yield made


def test_metadata(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("mlp")
    assert client.is_model_ready("mlp", "1") and not client.is_model_ready("none")
    assert client.get_server_metadata()["name"] == "graphc"
    assert client.get_model_metadata("mlp")["inputs"][0]["datatype"] == "FP32"


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_infer(client: Any, triton: Any, folder: Path, binary: bool, packed: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    tensor = triton.InferInput("input", [3, 4], "FP32")
    tensor.set_data_from_numpy(x, binary_data=binary)
    outputs = [triton.InferRequestedOutput("output", binary_data=binary)]
    found = client.infer("mlp", [tensor], outputs=outputs, request_id="7",
                         request_compression_algorithm=packed,
                         response_compression_algorithm=packed)
    want = load(folder / "mlp.gcx")(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(found.as_numpy("output"), want)
    assert found.get_response()["id"] == "7"
    requests = [client.async_infer("mlp", [tensor]) for _ in range(20)]
    for each in requests:
        np.testing.assert_allclose(each.get_result().as_numpy("output"), want, rtol=1e-5)


def test_halves_and_several(client: Any, triton: Any) -> None:
    x = np.array([[1, 2.5, -3], [4, 5, 6]], np.float32)
    tensor = triton.InferInput("x", [2, 3], "BF16")
    tensor.set_data_from_numpy(x.astype(ml_dtypes.bfloat16))
    found = client.infer("halves", [tensor]).as_numpy("output")
    np.testing.assert_array_equal(np.asarray(found, np.float32), x + x)
    arrays = {"x": x[:, :2], "flags": x[:, :2] > 0, "scale": np.full((2, 1), 2.0)}
    tensors = []
    for name, array in arrays.items():
        kind = {"float32": "FP32", "bool": "BOOL", "float64": "FP64"}[str(array.dtype)]
        tensors.append(triton.InferInput(name, list(array.shape), kind))
        tensors[-1].set_data_from_numpy(array)
    found = client.infer("several", tensors)
    np.testing.assert_array_equal(found.as_numpy("y"), np.abs(x[:, :2]) * 2.0)
    assert found.as_numpy("n").tolist() == [2]


def test_errors(client: Any, triton: Any) -> None:
    error = pytest.importorskip("tritonclient.utils").InferenceServerException
    tensor = triton.InferInput("input", [3, 5], "FP32")
    tensor.set_data_from_numpy(np.ones((3, 5), np.float32))
    with pytest.raises(error, match="the model takes"):
        client.infer("mlp", [tensor])
    with pytest.raises(error, match="there is no model"):
        client.infer("none", [tensor])
    words = triton.InferInput("input", [1], "BYTES")
    words.set_data_from_numpy(np.array(["a"], object))
    with pytest.raises(error, match="no tensors of datatype BYTES"):
        client.infer("mlp", [words])


def test_repository(client: Any) -> None:
    key = {"Authorization": f"Bearer {TOKEN}"}
    error = pytest.importorskip("tritonclient.utils").InferenceServerException
    with pytest.raises(error, match="token"):
        client.load_model("centred")
    client.load_model("centred", headers=key)
    assert client.is_model_ready("centred")
    assert any(m["name"] == "centred" for m in client.get_model_repository_index())
    client.unload_model("centred", headers=key)
    assert not client.is_model_ready("centred")
