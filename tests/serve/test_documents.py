"""JSON in pieces: what json.loads would give, or a refusal; never other numbers."""

import json
import random
from typing import Any

import numpy as np
import pytest

from graphc.ir import dtypes
from graphc.serve import documents
from graphc.serve.documents import LONG, Numbers, parse
from graphc.serve.errors import Refused
from graphc.serve.tensors import flat_text, from_json, nested_text, shape_of

try:
    import orjson
except ImportError:
    orjson = None

PARSERS = [None, orjson.loads] if orjson else [None]


@pytest.fixture(autouse=True, params=PARSERS, ids=["json", "orjson"][: len(PARSERS)])
def parser(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(documents, "_quick", lambda: request.param)
    return request.param


def whole(value: Any) -> Any:
    """A document with its Numbers parsed."""
    if isinstance(value, Numbers):
        flat = [item for piece in value.pieces() for item in piece]
        return np.array(flat).reshape(value.shape()).tolist()
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spaces", [None, 1])
@pytest.mark.parametrize("shape", [
    (9000,), (30, 400), (10, 20, 60), (9000, 1), (1, 9000), (5, 1, 2000),
])
def test_a_document_is_what_json_says(shape: tuple[int, ...], spaces: int | None) -> None:
    array = np.random.default_rng(0).integers(-99, 10**6, shape)
    for data in (array.tolist(), (array / 7).tolist()):
        document = {
            "id": 'a "quoted\\" [text', "inputs": [
                {"name": "x", "shape": list(shape), "data": data, "after": [1, {"a": []}]},
                {"data": data, "name": "\\"}, {"small": [1, [2, 3]]},
            ], "last": data,
        }
        text = json.dumps(document, indent=spaces).encode()
        found = parse(text, 64)
        assert isinstance(found["inputs"][0]["data"], Numbers)
        assert isinstance(found["inputs"][1]["data"], Numbers)
        assert isinstance(found["last"], Numbers)
        assert whole(found) == document
    assert shape_of(parse(json.dumps(array.tolist()).encode(), 64)) == shape


def long_text(change: str, where: int = 5000) -> bytes:
    """A long array of ones in which one element is another text."""
    items = ["1"] * (LONG // 2 + 100)
    items[where] = change
    return ("[" + ",".join(items) + "]").encode()


@pytest.mark.parametrize("change", [
    "", "1 2", "1[2", "1]2", "[1", "[1]", "1]", "x", "1e", "--1", "NaN", "null", "0x1", "1.2.3",
    "tru",
    '"1"', "1,", ",", "{}", "1}", "]", "[", "01", "+1", ".5", "1_0", "\u0661",
])
def test_long_arrays_of_something_else_are_refused(change: str) -> None:
    text = long_text(change)
    count = LONG // 2 + 100
    with pytest.raises(Refused):
        from_json(parse(text, 64), dtypes.f32, (count,), "x")


@pytest.mark.parametrize("change, dtype", [("1.5", dtypes.i32), ("3000000000", dtypes.i32),
                                           ("true", dtypes.f32), ("1e39", dtypes.f32),
                                           ("70000", dtypes.f16)])
def test_numbers_that_a_dtype_lacks(change: str, dtype: Any) -> None:
    with pytest.raises(Refused, match="at 5000"):
        from_json(parse(long_text(change), 64), dtype, (LONG // 2 + 100,), "x")


def test_long_bools() -> None:
    flags = [random.Random(0).random() < 0.5 for _ in range(20_000)]
    found = parse(json.dumps(np.reshape(flags, (200, 100)).tolist()).encode(), 64)
    assert isinstance(found, Numbers)
    array = from_json(found, dtypes.bool_, (200, 100), "x")
    np.testing.assert_array_equal(array.reshape(-1), flags)
    assert found.shape() == (200, 100)


def test_shapes_that_brackets_do_not_have() -> None:
    rows = np.ones((200, 100)).tolist()
    good = parse(json.dumps(rows).encode(), 64)
    for wrong in ((100, 200), (20_001,), (200, 100, 1), (2, 100, 100)):
        with pytest.raises(Refused):
            from_json(good, dtypes.f32, wrong, "x")
    rows[7].append(rows[8].pop())  # as many in all
    ragged = parse(json.dumps(rows).encode(), 64)
    with pytest.raises(Refused):
        from_json(ragged, dtypes.f32, (200, 100), "x")
    with pytest.raises(Refused, match="rectangular"):
        shape_of(ragged)


@pytest.mark.parametrize("text", [
    b"[" * 200_000, b"[" * 100_000 + b"]" * 100_000, b"[" + b"[]," * 50_000 + b"[]]",
    b'{"a":' + b"[" * 40_000 + b"1" + b"]" * 40_000 + b"}", b'"' + b"a" * 300_000,
    b'"' + b'\\"' * 100_000 + b'"', b'["' + b"\\" * 99_999 + b'"]', b"," * 100_000,
    b"[" + b"," * 100_000 + b"]", b"[" + b"1" * 100_000 + b"]", b"]" * 50_000 + b"[" * 50_000,
    b'{"a":[' + b"1," * 20_000 + b"1}", b"[" + b" " * 100_000, b"[" + b"e" * 100_000 + b"]",
])
def test_hostile_documents_end_quickly(text: bytes) -> None:
    try:
        found = parse(text, 64)
        if isinstance(found, Numbers):
            from_json(found, dtypes.f32, shape_of(found), "x")
    except Refused:
        return
    assert not isinstance(found, Numbers)


def test_random_damage_never_changes_a_number() -> None:
    """A byte changed anywhere: refused, or what json.loads says, too."""
    chance = random.Random(1)
    text = json.dumps({"data": np.arange(12_000).reshape(60, 200).tolist(), "n": "x"}).encode()
    for _ in range(60):
        damaged = bytearray(text)
        for _ in range(chance.randint(1, 2)):
            damaged[chance.randrange(len(text))] = chance.choice(b'[]{},"0129.e- \\x')
        try:
            document = parse(bytes(damaged), 64)
            have = from_json(document["data"], dtypes.f64, (60, 200), "x")
        except (Refused, KeyError, TypeError):
            continue
        want = json.loads(bytes(damaged))
        np.testing.assert_array_equal(have, np.reshape(want["data"], (60, 200)))


TEXTS = r"""
1 -1 0 -0 0.0 -0.0 1e400 -1e400 1e-400 1e5 1E+5 1.0e0 0.1 5e-324 2.2250738585072011e-308
1.7976931348623157e308 123456789012345678 9223372036854775807 9223372036854775808
18446744073709551615 18446744073709551616 -9223372036854775809 12345678901234567890123
0.1234567890123456789012345 123456789012345678.5 1e22 1e23 9007199254740993 true false null
"" "a" "\u00e9" "\ud800" "\ud83d\ude00" "\u0000" "\/" {} [] [[]] {"a":1,"a":2} [1,2.5,"x"]
NaN Infinity -Infinity nan 01 1. .5 +1 1_0 0x1 1e 1e+ - "\t" "\x" [1,] {"a":1,} {"a"} {1:2} 'a'
tru 1,2 [1[2 "a 1]
""".split()


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_read_is_what_json_says(text: str) -> None:
    for spelled in (text, f" {text}\n", f"[{text}]", "[" * 900 + text + "]" * 900):
        try:
            want = json.loads(spelled, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            with pytest.raises(Refused):
                documents.loads(spelled.encode())
        else:
            assert repr(documents.loads(spelled.encode())) == repr(want)


@pytest.mark.parametrize(("text", "long"), [
    ("[0.0044999998062849045, -1.2345678901234567890e-12]", False),  # as float32's are printed
    ("123456789012345678", False), ("1234567890123456789", True), ("-9223372036854775809", True),
    ("[1,18446744073709551616]", True), ("12345678901234567890.5", True),
])
def test_only_long_integers_are_left_to_json(text: str, long: bool) -> None:
    assert documents.has_long_integer(text.encode()) is long


@pytest.mark.parametrize("text", [b"\xff", b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b"", b" ", b"\x00"])
def test_what_is_no_text_is_refused(text: bytes) -> None:
    with pytest.raises(Refused):
        documents.loads(text)


def test_answers_in_pieces() -> None:
    array = np.random.default_rng(0).standard_normal((3, 50, 90)).astype(np.float32)
    for value in (array, array[:1, :1, :3], array[0, 0, 0], array > 0, array.reshape(-1)[:9000]):
        assert json.loads(b"".join(flat_text(value, "y"))) == value.reshape(-1).tolist()
        assert json.loads(b"".join(nested_text(value, "y"))) == value.tolist()
