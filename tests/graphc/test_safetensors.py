"""Our safetensors reader and writer against the package, and against damaged bytes."""

import json

import ml_dtypes
import numpy as np
import pytest

from graphc.export import safetensors


def test_safetensors_agrees_with_the_package() -> None:
    package = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    data = {
        "f32": rng.standard_normal((2, 3), np.float32), "empty": np.zeros((0, 4)),
        "scalar": np.array(7, np.int64), "flag": np.array([True, False]),
        "i8": np.array([-1], np.int8), "f16": np.ones(3, np.float16),
        "turned": rng.standard_normal((4, 5)).T,
        "u8": np.arange(5, dtype=np.uint8), "i16": np.ones((1, 1), np.int16),
        "i32": np.zeros(3, np.int32),
    }
    ours = safetensors.dumps(data, {"made": "here"})
    theirs = package.load(ours)
    back, metadata = safetensors.loads(package.save(
        {name: np.array(array, order="C") for name, array in data.items()}, {"k": "v"}
    ))
    assert metadata == {"k": "v"} and safetensors.loads(ours)[1] == {"made": "here"}
    for name, array in data.items():
        for found in (theirs[name], back[name], safetensors.loads(ours)[0][name]):
            assert found.shape == array.shape
            np.testing.assert_array_equal(
                found.astype(np.float64), array.astype(np.float64), err_msg=name
            )


def test_safetensors_of_bfloat16() -> None:
    data = safetensors.dumps({"a": np.array([1.5, -2], ml_dtypes.bfloat16)})
    assert b'"BF16"' in data and data.endswith(bytes.fromhex("c03f00c0"))
    found, _ = safetensors.loads(data)
    assert found["a"].dtype == ml_dtypes.bfloat16 and found["a"].tolist() == [1.5, -2]


def test_safetensors_believes_nothing() -> None:
    good = safetensors.dumps({"a": np.arange(3.0), "b": np.ones((2, 2), np.float32)})
    for length in range(len(good)):
        with pytest.raises(safetensors.SafetensorsError):
            safetensors.loads(good[:length])
    for header in (
        {"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": [-3], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": [1 << 62, 8], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": [1 << 62, 8], "data_offsets": [0, 0]}},
        {"a": {"dtype": "F64", "shape": [3], "data_offsets": [8, 32]}},
        {n: {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]} for n in "ab"},
        {"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}},
        {"a": {"dtype": "F64", "shape": [3], "data_offsets": [24, 0]}},
        {"a": {"dtype": "C99", "shape": [3], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": 3, "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": [3]}},
        {"a": 1},
        [1],
    ):
        encoded = json.dumps(header).encode()
        data = len(encoded).to_bytes(8, "little") + encoded + b"\0" * 24
        with pytest.raises(safetensors.SafetensorsError):
            safetensors.loads(data)
