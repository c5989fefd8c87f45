"""The Open Inference Protocol, version 2, over HTTP, with Triton's extension for binary tensors.

github.com/kserve/open-inference-protocol; the binary extension and the repository's calls are
described in docs/protocol of github.com/triton-inference-server/server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graphc.serve import tensors
from graphc.serve.bodies import read, share
from graphc.serve.datatypes import NAMES, check
from graphc.serve.documents import Numbers, parse
from graphc.serve.endpoints import route
from graphc.serve.errors import malformed, shown, too_large
from graphc.serve.inference import aside, infer, text_size
from graphc.serve.model import Arguments, Model
from graphc.serve.settings import Settings
from graphc.serve.state import State, authorised, state_of

_LENGTH = "inference-header-content-length"
_EXTENSIONS = ["binary_tensor_data", "model_repository"]


@dataclass
class Asked:
    """One request as it was read: what goes in, and which results are wanted how."""

    arguments: Arguments
    id: str | None
    outputs: list[tuple[int, bool]] = field(default_factory=list)  # (number, as binary data)


# --- reading a request -------------------------------------------------------------------------


def header_length(text: str | None, size: int) -> int | None:
    """How many bytes of the body are JSON; None: all. Raises Refused."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > size:
        raise malformed(
            f"Inference-Header-Content-Length is {shown(text)}; the body has {size} bytes"
        )
    return int(text)


def decode(model: Model, body: bytes, length: int | None, settings: Settings) -> Asked:
    """A request's body. Raises Refused for whatever is wrong with it, before it is computed."""
    size = len(body) if length is None else length
    if size > settings.max_json:
        raise too_large(f"the JSON of the body has {size} bytes; the limit is {settings.max_json}. "
                        "Cure: send tensors as binary data")
    document = parse(body[:size], settings.max_depth)
    if not isinstance(document, dict):
        raise malformed(f"the body is {shown(document)}, and must be an object with \"inputs\"")
    name = document.get("id")
    if name is not None and not isinstance(name, str):
        raise malformed(f"the id of the request is {shown(name)}, and must be a string")
    inputs = document.get("inputs")
    if not isinstance(inputs, list):
        raise malformed(f'"inputs" is {shown(inputs)}, and must be a list of tensors')
    arrays: dict[int, np.ndarray] = {}
    rest = memoryview(body)[size:]
    for tensor in inputs:
        number, array, used = _input(model, tensor, rest)
        if number in arrays:
            raise malformed(f"input {model.inputs[number].name!r} is given twice")
        arrays[number], rest = array, rest[used:]
    if len(rest):
        raise malformed(f"the body has {len(rest)} bytes behind the binary data of its inputs")
    return Asked(model.arguments(arrays), name, _outputs(model, document))


def _input(model: Model, tensor: Any, rest: memoryview) -> tuple[int, np.ndarray, int]:
    """(number of the input, its array, how many bytes of `rest` it took)."""
    if not isinstance(tensor, dict):
        raise malformed(f"an input is {shown(tensor)}, and must be an object")
    number = model.expected(tensor.get("name"))
    spec = model.inputs[number]
    check(tensor.get("datatype"), spec.dtype, spec.name)
    shape = _shape(tensor.get("shape"), spec.name)
    model.check_shape(number, shape)
    parameters = _parameters(tensor, f"input {spec.name!r}")
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in tensor:
            raise malformed(f'input {spec.name!r} has neither "data" nor a binary_data_size')
        return number, tensors.from_json(tensor["data"], spec.dtype, shape, spec.name), 0
    if "data" in tensor:
        raise malformed(f'input {spec.name!r} has both "data" and a binary_data_size')
    if type(size) is not int or not 0 <= size <= len(rest):
        raise malformed(
            f"the binary_data_size of input {spec.name!r} is {shown(size)}; the body has "
            f"{len(rest)} bytes left"
        )
    return number, tensors.from_bytes(rest[:size], spec.dtype, shape, spec.name), size


def _shape(sizes: Any, name: str) -> tuple[int, ...]:
    whole = isinstance(sizes, list) and len(sizes) <= 64 and all(
        type(size) is int and 0 <= size < 1 << 48 for size in sizes
    )
    if not whole:
        raise malformed(f"the shape of input {name!r} is {shown(sizes)}, and must be a list of "
                        "sizes")
    if math.prod(sizes) >= 1 << 48:
        raise malformed(f"the shape of input {name!r} is {shown(sizes)}, which is too large")
    return tuple(sizes)


def _parameters(holder: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    found = holder.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise malformed(f"the parameters of {what} are {shown(found)}, and must be an object")
    for name in ("shared_memory_region", "classification"):
        if name in found:
            raise malformed(f"{what} asks for {name}, which this server does not have")
    return found


def _outputs(model: Model, document: Mapping[str, Any]) -> list[tuple[int, bool]]:
    """The results that a request wants; all where it names none."""
    binary = _flag(_parameters(document, "the request"), "binary_data_output")
    wanted = document.get("outputs")
    if wanted is None:
        return [(number, binary) for number in range(len(model.outputs))]
    if not isinstance(wanted, list):
        raise malformed(f'"outputs" is {shown(wanted)}, and must be a list')
    names = {spec.name: number for number, spec in enumerate(model.outputs)}
    found: list[tuple[int, bool]] = []
    for output in wanted:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str) or name not in names:
            raise malformed(
                f"an output is {shown(output)}; model {model.name!r} has {', '.join(names)}"
            )
        parameters = _parameters(output, f"output {name!r}")
        found.append((names[name], _flag(parameters, "binary_data", binary)))
    if len(found) > len(names):
        raise malformed(f"{len(found)} outputs are asked for; the model has {len(names)}")
    return found


def _flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise malformed(f"{name} is {shown(value)}, and must be true or false")
    return value


# --- an answer ---------------------------------------------------------------------------------


def encode(model: Model, asked: Asked, results: tuple[np.ndarray, ...]) -> Response:
    """The answer: JSON, with the binary tensors behind it."""
    head: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
    if asked.id is not None:
        head["id"] = asked.id
    parts = [json.dumps(head, separators=(",", ":")).encode()[:-1], b',"outputs":[']
    blobs: list[bytes | memoryview] = []
    for place, (number, binary) in enumerate(asked.outputs):
        spec, array = model.outputs[number], results[number]
        output: dict[str, Any] = {
            "name": spec.name, "datatype": NAMES[spec.dtype], "shape": list(array.shape)
        }
        if binary:
            output["parameters"] = {"binary_data_size": array.nbytes}
            blobs.append(tensors.to_bytes(array))
        text = json.dumps(output, separators=(",", ":")).encode()
        parts.append((b"," if place else b"") + text[:-1])
        if not binary:
            parts.append(b',"data":')
            parts.extend(tensors.flat_text(array, spec.name))
        parts.append(b"}")
    parts.append(b"]}")
    text = b"".join(parts)
    if not any(binary for _, binary in asked.outputs):
        return Response(text, media_type="application/json")
    return Response(
        b"".join([text, *blobs]), media_type="application/octet-stream",
        headers={"Inference-Header-Content-Length": str(len(text))},
    )


async def _infer(request: Request) -> Response:
    state = state_of(request)
    served = state.registry.ready(*_named(request))
    with share(state.memory) as mine:
        body = await read(request, state.settings, mine)
        length = header_length(request.headers.get(_LENGTH), len(body))
        asked = await aside(
            len(body), lambda: decode(served.model, body, length, state.settings)
        )
        results = await infer(request, served, asked.arguments)
        return await aside(
            text_size(results), lambda: encode(served.model, asked, results)
        )


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


# --- the server and its models -----------------------------------------------------------------


async def _server(request: Request) -> Response:
    state = state_of(request)
    return JSONResponse(
        {"name": "graphc", "version": state.version, "extensions": _EXTENSIONS}
    )


async def _live(request: Request) -> Response:
    return JSONResponse({"live": True})


async def _ready(request: Request) -> Response:
    ready = state_of(request).ready
    return JSONResponse({"ready": ready}, 200 if ready else 503)


async def _model(request: Request) -> Response:
    registry = state_of(request).registry
    model = registry.find(*_named(request)).model
    return JSONResponse({
        "name": model.name, "versions": registry.versions(model.name), "platform": "graphc_gcx",
        "inputs": [spec.described() for spec in model.inputs],
        "outputs": [spec.described() for spec in model.outputs],
    })


async def _model_ready(request: Request) -> Response:
    state = state_of(request)
    served = state.registry.find(*_named(request))
    ready = served.state == "READY" and not state.stopping
    return JSONResponse({"name": served.model.name, "ready": ready}, 200 if ready else 503)


# --- the repository ----------------------------------------------------------------------------


async def _index(request: Request) -> Response:
    state = state_of(request)
    document = await _document(request, state)
    found = [
        {"name": s.model.name, "version": s.model.version, "state": s.state,
         "reason": "" if s.batcher.together else s.model.reason}
        for s in state.registry.all()
    ]
    if not document.get("ready"):
        known = {(entry["name"], entry["version"]) for entry in found}
        found += [
            {"name": name, "version": version, "state": "UNAVAILABLE", "reason": "not loaded"}
            for name, version, _ in state.registry.in_folder() if (name, version) not in known
        ]
    return JSONResponse(found)


async def _load(request: Request) -> Response:
    state = state_of(request)
    authorised(request, state)
    document = await _document(request, state)
    if _parameters(document, "the request"):
        raise malformed("a model is loaded as it lies in the folder; parameters are not taken")
    await state.off_loop(lambda: state.registry.load(request.path_params["name"]))
    return JSONResponse({})


async def _unload(request: Request) -> Response:
    state = state_of(request)
    authorised(request, state)
    await _document(request, state)
    await state.off_loop(lambda: state.registry.remove(request.path_params["name"]))
    return JSONResponse({})


async def _document(request: Request, state: State) -> Mapping[str, Any]:
    """The body of a call of the repository: an object, or nothing."""
    with share(state.memory) as mine:
        body = await read(request, state.settings, mine)
        if len(body) > 1 << 16:
            raise too_large("the body has more than 65536 bytes")
        found = parse(body, state.settings.max_depth) if body.strip() else {}
    if not isinstance(found, dict) or any(isinstance(v, Numbers) for v in found.values()):
        raise malformed("the body must be a JSON object")
    return found


_AT = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")

ROUTES = [
    *(route(f"{at}/infer", _infer, methods=["POST"]) for at in _AT),
    *(route(at, _model) for at in _AT),
    *(route(f"{at}/ready", _model_ready) for at in _AT),
    route("/v2", _server),
    route("/v2/health/live", _live),
    route("/v2/health/ready", _ready),
    route("/v2/repository/index", _index, methods=["POST"]),
    route("/v2/repository/models/{name}/load", _load, methods=["POST"]),
    route("/v2/repository/models/{name}/unload", _unload, methods=["POST"]),
]
