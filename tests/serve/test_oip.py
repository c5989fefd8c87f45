"""The Open Inference Protocol: metadata, JSON, binary tensors, every datatype, the repository."""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as torch
from graphc.export import Dim, export, load
from graphc.serve.settings import Settings
from tests.serve.client import Client, arrays_of, binary, request, tensor

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def direct(folder: Path, name: str, *arrays: np.ndarray, **named: np.ndarray) -> Any:
    """What the program gives without a server."""
    program = load(folder / f"{name}.gcx")
    return program(*map(torch.from_numpy, arrays),
                   **{k: torch.from_numpy(v) for k, v in named.items()})


def test_health_and_metadata(client: Client) -> None:
    assert client.ask("GET", "/v2").json["name"] == "graphc"
    assert client.ask("GET", "/v2/health/live").status == 200
    assert client.ask("GET", "/v2/health/ready").json == {"ready": True}
    found = client.ask("GET", "/v2/models/mlp").json
    assert found == {
        "name": "mlp", "versions": ["1"], "platform": "graphc_gcx",
        "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "output", "datatype": "FP32", "shape": [-1, 3]}],
    }
    assert client.ask("GET", "/v2/models/mlp/versions/1/ready").status == 200
    found = client.ask("GET", "/v2/models/several").json
    assert [(t["name"], t["datatype"]) for t in found["inputs"]] == [
        ("x", "FP32"), ("flags", "BOOL"), ("scale", "FP64")]
    assert [(t["name"], t["datatype"], t["shape"]) for t in found["outputs"]] == [
        ("y", "FP64", [-1, 2]), ("n", "INT64", [1]), ("parts.0", "BOOL", [-1, 2]),
        ("parts.1", "INT32", [-1, 2])]


@pytest.mark.parametrize("path", [
    "/v2/models/none", "/v2/models/none/ready", "/v2/models/mlp/versions/7", "/v2/nothing",
    "/models/none", "/",
])
def test_what_is_not_there(client: Client, path: str) -> None:
    reply = client.ask("GET", path)
    assert reply.status == 404 and reply.error


def test_json_and_bytes_give_the_programs_results(client: Client, folder: Path) -> None:
    want = direct(folder, "mlp", X).numpy()
    reply = client.infer("mlp", {"input": X}, id="a")
    assert reply.status == 200 and reply.json["id"] == "a"
    assert reply.json["model_name"] == "mlp" and reply.json["model_version"] == "1"
    np.testing.assert_array_equal(arrays_of(reply)["output"], want)
    nested = {"inputs": [tensor("input", X, data=X.tolist())]}
    np.testing.assert_array_equal(
        arrays_of(client.ask("POST", "/v2/models/mlp/versions/1/infer", nested))["output"], want)
    body, headers = binary({"input": X}, parameters={"binary_data_output": True})
    reply = client.ask("POST", "/v2/models/mlp/infer", body, headers)
    assert reply.headers["content-type"] == "application/octet-stream"
    np.testing.assert_array_equal(arrays_of(reply)["output"], want)
    assert "queue;dur=" in reply.headers["server-timing"]
    for packed, encoding in ((gzip.compress(body), "gzip"), (zlib.compress(body), "deflate")):
        again = client.ask("POST", "/v2/models/mlp/infer", packed,
                           {**headers, "Content-Encoding": encoding})
        assert again.body == reply.body


def test_one_row(client: Client, folder: Path) -> None:
    reply = arrays_of(client.infer("mlp", {"input": X[:1]}))
    np.testing.assert_array_equal(reply["output"], direct(folder, "mlp", X[:1]).numpy())
    arrays = {"x": X[:1, :2], "flags": np.array([[True, False]]), "scale": np.array([[2.0]])}
    found = arrays_of(client.infer("several", arrays))
    assert found["n"].tolist() == [1] and found["y"].shape == (1, 2)


def test_one_row_of_a_program_for_two(tmp_path: Path) -> None:
    """Computed twice and given back once; where rows meet, there is nothing to fill up with."""
    free = {0: Dim("batch", min=2)}
    for name, function in (("apart", lambda x: {"y": x * 2, "n": x.shape[0]}),
                           ("centred", lambda x: x - x.mean(0))):
        export(function, (torch.ones(2, 4),), dynamic_shapes=(free,)).save(tmp_path / f"{name}.gcx")
    with Client(Settings(folder=tmp_path), {}) as client:
        for name in ("apart", "centred"):
            client.state.registry.load(name)
        found = arrays_of(client.infer("apart", {"x": X[:1]}))
        np.testing.assert_array_equal(found["y"], X[:1] * 2)
        assert found["n"].tolist() == [1]
        refused = client.infer("centred", {"x": X[:1]})
    assert refused.status == 400 and "was exported for 2" in refused.error
    assert "holds the batch" in refused.error


def test_every_dtype_and_several_results(client: Client, folder: Path) -> None:
    arrays = {"x": X[:, :2], "flags": X[:, 1:3] > 0, "scale": np.arange(3.0)[:, None]}
    want = direct(folder, "several", arrays["x"], arrays["flags"], scale=arrays["scale"])
    body, headers = binary(arrays, outputs=[
        {"name": "parts.1", "parameters": {"binary_data": True}}, {"name": "y"}, {"name": "n"},
    ])
    for reply in (client.infer("several", arrays),
                  client.ask("POST", "/v2/models/several/infer", body, headers)):
        found = arrays_of(reply)
        np.testing.assert_array_equal(found["y"], want["y"].numpy())
        np.testing.assert_array_equal(found["parts.1"], want["parts"][1].numpy())
        assert found["n"].tolist() == [3]
    assert list(found) == ["parts.1", "y", "n"]


@pytest.mark.parametrize("name, dtype", [("halves", ml_dtypes.bfloat16), ("fixed", np.float16)])
def test_halves_as_bytes_and_as_numbers(client: Client, name: str, dtype: Any) -> None:
    x = np.array([[1, 2.5, -3], [0.1, 7, 8]], dtype)[:, : 3 if name == "halves" else 2]
    body, headers = binary({"x": x}, parameters={"binary_data_output": True})
    for reply in (client.ask("POST", f"/v2/models/{name}/infer", body, headers),
                  client.infer(name, {"x": x})):
        np.testing.assert_array_equal(arrays_of(reply)["output"], x + x)


def test_large_tensors_take_the_way_of_pieces(client: Client, folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3000, 4)).astype(np.float32)
    want = direct(folder, "mlp", x).numpy()
    for data in (x.tolist(), x.reshape(-1).tolist()):
        reply = client.ask(
            "POST", "/v2/models/mlp/infer", {"inputs": [tensor("input", x, data=data)]})
        np.testing.assert_allclose(arrays_of(reply)["output"], want, rtol=1e-6)


def edited(**changes: Any) -> dict[str, Any]:
    """A right request for mlp with its tensor changed; None: without the key."""
    wanted = request({"input": X})
    entry = wanted["inputs"][0]
    for key, value in changes.items():
        entry[key] = value
        if value is None:
            del entry[key]
    return wanted


# (body, words of the error)
MALFORMED: list[tuple[Any, str]] = [
    (b"", "empty"), (b"{", "not JSON"), (b"[1]", "must be an object"), (b"\xff{}", "not UTF-8"),
    ({}, '"inputs" is None'), ({"inputs": {}}, '"inputs" is {}'),
    ({"inputs": []}, "also needs the input input"), ({"inputs": [3]}, "an input is 3"),
    (edited(name="y"), "has no input 'y'; it takes input"), (edited(name=None), "no input None"),
    (edited(name=["a"]), "no input ['a']"),
    (edited(datatype="FP64"), "has the datatype 'FP64'. Cure: send FP32"),
    (edited(datatype="BYTES"), "no tensors of datatype BYTES"),
    (edited(datatype="UINT16"), "no tensors of datatype UINT16"),
    (edited(datatype=3), "datatype 3"),
    (edited(shape=[3]), "but the model takes ['batch', 4]"), (edited(shape=[3, 5]), "['batch', 4]"),
    (edited(shape=[0, 4]), "['batch', 4]"), (edited(shape=[-3, 4]), "must be a list of sizes"),
    (edited(shape=[3.0, 4]), "list of sizes"), (edited(shape=[True, 4]), "list of sizes"),
    (edited(shape=[2**62, 4]), "list of sizes"),
    (edited(shape=[2**40, 4]), "4398046511104 numbers"),
    (edited(shape=[1] * 99), "list of sizes"), (edited(shape="3,4"), "list of sizes"),
    (edited(shape=[4, 4]), "not 16 numbers"), (edited(data=[1, 2]), "not 12 numbers"),
    (edited(data=None), "neither"), (edited(data="abc"), "must be a list"),
    (edited(data=[[1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4]]), "not 12 numbers"),
    (edited(data=[1.0] * 11 + ["x"]), "has 'x' at 11"), (edited(data=[None] * 12), "None at 0"),
    (edited(data=[True] * 12), "has True at 0"), (edited(data=[1] * 11 + [[1]]), "not 12 numbers"),
    (edited(data=[1e39] + [0] * 11), "has 1e+39 at 0, which float32 does not have"),
    (edited(data=[10**400] + [0] * 11), "which float32 does not have"),
    (edited(data=[0] * 11 + [float("nan")]), "NaN is no number"),
    (edited(data=[float("inf")] * 12), "Infinity is no number"),
    (edited(parameters=3), "must be an object"),
    (edited(parameters={"shared_memory_region": "r"}), "shared_memory_region"),
    (edited(parameters={"binary_data_size": 48}), "both"),
    (edited(data=None, parameters={"binary_data_size": 48}), "has 0 bytes left"),
    (edited(data=None, parameters={"binary_data_size": True}), "is True"),
    ({"inputs": [*edited()["inputs"], *edited()["inputs"]]}, "given twice"),
    ({**edited(), "outputs": [{"name": "z"}]}, "model 'mlp' has output"),
    ({**edited(), "outputs": 3}, '"outputs" is 3'),
    ({**edited(), "outputs": [3]}, "an output is 3"),
    ({**edited(), "outputs": [{"name": "output"}] * 9}, "9 outputs are asked for"),
    ({**edited(), "id": 7}, "must be a string"),
    ({**edited(), "parameters": {"binary_data_output": 1}}, "true or false"),
    (b"[" * 100_000, "nested more than 64 deep"), (b'{"inputs":' + b"[" * 70, "nested more than"),
    (b'{"inputs', "not JSON"), (b'{"a' + b" " * 40_000, "string without an end"),
]


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_malformed_requests_are_told_what_is_wrong(client: Client, number: int) -> None:
    body, words = MALFORMED[number]
    reply = client.ask("POST", "/v2/models/mlp/infer", body)
    assert reply.status == 400 and words in reply.error, reply
    assert len(reply.error) < 400


@pytest.mark.parametrize("length, words", [
    ("x", "is 'x'"), ("-1", "is '-1'"), ("999999", "the body has"), ("1" * 30, "is '111"),
    ("1", "not JSON"), ("3", "not JSON"), ("\u0661", "is '"),
])
def test_lying_header_lengths(client: Client, length: str, words: str) -> None:
    body, _ = binary({"input": X})
    reply = client.ask(
        "POST", "/v2/models/mlp/infer", body, {"Inference-Header-Content-Length": length})
    assert reply.status == 400 and words in reply.error


def test_bytes_that_do_not_fit(client: Client) -> None:
    body, headers = binary({"input": X})
    for wrong in (body[:-1], body + b"0"):
        reply = client.ask("POST", "/v2/models/mlp/infer", wrong, headers)
        assert reply.status == 400 and "bytes" in reply.error
    flags = np.array([[1, 7], [0, 1]], np.uint8)
    arrays = {"x": X[:2, :2], "flags": flags.view(np.bool_), "scale": np.ones((2, 1))}
    body, headers = binary(arrays)
    reply = client.ask("POST", "/v2/models/several/infer", body, headers)
    assert reply.status == 400 and "byte 1 is 7" in reply.error
    other = {**arrays, "flags": flags.astype(bool), "scale": np.ones((3, 1))}
    reply = client.infer("several", other)
    assert reply.status == 400 and "dim 0 of input 'scale' is 3, but 'batch' is 2" in reply.error


def test_integers_are_checked_one_by_one(client: Client) -> None:
    good = {"name": "ids", "datatype": "INT64", "shape": [1, 3]}
    path = "/v2/models/lookup/infer"
    assert client.ask("POST", path, {"inputs": [{**good, "data": [1, 2.0, 9]}]}).status == 200
    for bad, words in (([1, 2, 1.5], "has 1.5 at 2"), ([2**63, 0, 0], "at 0, which int64")):
        reply = client.ask("POST", path, {"inputs": [{**good, "data": bad}]})
        assert reply.status == 400 and words in reply.error
    reply = client.ask("POST", path, {"inputs": [{**good, "data": [1, 2, 10]}]})
    assert reply.status == 400 and "cannot take these values" in reply.error


def test_what_json_cannot_say(client: Client) -> None:
    x = np.full((2, 2), 60000, np.float16)
    reply = client.infer("fixed", {"x": x})
    assert reply.status == 422 and "NaN or an infinity" in reply.error
    body, headers = binary({"x": x}, parameters={"binary_data_output": True})
    reply = client.ask("POST", "/v2/models/fixed/infer", body, headers)
    assert np.isinf(arrays_of(reply)["output"]).all()


def test_the_repository_is_read_only(client: Client) -> None:
    found = client.ask("POST", "/v2/repository/index").json
    assert {"name": "mlp", "version": "1", "state": "READY", "reason": ""} in found
    assert "holds the batch" in next(m["reason"] for m in found if m["name"] == "centred")
    for path in ("load", "unload"):
        reply = client.ask("POST", f"/v2/repository/models/mlp/{path}")
        assert reply.status == 403 and "--token-file" in reply.error
    assert client.ask("POST", "/models?url=mlp.gcx").status == 403
    assert client.ask("DELETE", "/models/mlp").status == 403
    assert client.ask("GET", "/v2/models/mlp/infer").status == 405


def test_models_come_and_go_by_token(folder: Path, tmp_path: Path) -> None:
    for name, source in (("mlp", "mlp"), ("mlp@2", "mlp"), ("centred", "centred")):
        (tmp_path / f"{name}.gcx").write_bytes((folder / f"{source}.gcx").read_bytes())
    (tmp_path / "bad.gcx").write_bytes(b"PK")
    (tmp_path / "out.gcx").symlink_to(folder / "mlp.gcx")
    token = "a-token-of-some-length"
    key = {"Authorization": f"Bearer {token}"}
    load_mlp = "/v2/repository/models/mlp/load"
    with Client(Settings(folder=tmp_path, token=token), {}) as client:
        assert client.ask("POST", load_mlp).status == 401
        for wrong in (f"{token}x", "", "\u00e4", token[:-1]):
            given = {"Authorization": f"Bearer {wrong}"}
            assert client.ask("POST", load_mlp, b"", given).status == 401
        index = client.ask("POST", "/v2/repository/index").json
        assert {(m["name"], m["version"], m["state"]) for m in index} == {
            ("mlp", "1", "UNAVAILABLE"), ("mlp", "2", "UNAVAILABLE"), ("bad", "1", "UNAVAILABLE"),
            ("centred", "1", "UNAVAILABLE")}
        assert client.ask("POST", load_mlp, b"{}", key).status == 200
        assert client.ask("GET", "/v2/models/mlp").json["versions"] == ["1", "2"]
        assert client.infer("mlp", {"input": X}).json["model_version"] == "2"
        assert client.ask("POST", load_mlp, {"parameters": {"config": "{}"}}, key).status == 400
        reply = client.ask("POST", "/v2/repository/models/bad/load", b"", key)
        assert reply.status == 400 and str(tmp_path) not in reply.error
        for name in ("out", "..", "none", "%2e%2e", "mlp.gcx"):
            reply = client.ask("POST", f"/v2/repository/models/{name}/load", b"", key)
            assert reply.status in (400, 404), name
        for url in ("http://localhost/m.gcx", "../mlp.gcx", "/etc/passwd", "x.mar", "out.gcx"):
            assert client.ask("POST", f"/models?url={url}", b"", key).status in (400, 404)
        assert client.ask("POST", "/models?url=centred.gcx", b"", key).status == 200
        assert client.ask("DELETE", "/models/mlp/1", b"", key).status == 200
        assert client.ask("GET", "/v2/models/mlp").json["versions"] == ["2"]
        unload = "/v2/repository/models/mlp/unload"
        assert client.ask("POST", unload, json.dumps({}).encode(), key).status == 200
        assert client.ask("POST", unload, b"", key).status == 404
        assert client.ask("GET", "/v2/models/mlp").status == 404
