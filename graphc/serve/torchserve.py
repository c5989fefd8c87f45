"""TorchServe's calls: /ping, /predictions/{name}[/{version}], /models. github.com/pytorch/serve"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graphc.serve import tensors
from graphc.serve.bodies import read, share
from graphc.serve.documents import parse
from graphc.serve.endpoints import route
from graphc.serve.errors import Refused, malformed, shown, too_large
from graphc.serve.inference import aside, infer, text_size
from graphc.serve.model import Arguments, Model
from graphc.serve.registry import Served
from graphc.serve.settings import Settings
from graphc.serve.state import authorised, state_of

_NPY = "application/x-npy"

# --- predictions -------------------------------------------------------------------------------


def decode(model: Model, body: bytes, kind: str, settings: Settings) -> tuple[Arguments, bool]:
    """A request's tensors, and whether it is one sample, without the dim of the batch.

    The body is the one input (nested lists of JSON, or a .npy file), or an object of them by name.
    """
    if body.startswith(b"\x93NUMPY") or kind == _NPY:
        values: dict[int, Any] = {_only(model): body}
        arrays = {n: tensors.from_npy(b, model.inputs[n].dtype, model.inputs[n].name)
                  for n, b in values.items()}
    else:
        if kind.startswith("multipart/"):
            raise Refused(415, "forms are not read. Cure: send the file as the body (curl -T)")
        if len(body) > settings.max_json:
            raise too_large(f"the JSON of the body has {len(body)} bytes; the limit is "
                            f"{settings.max_json}. Cure: send a .npy file")
        document = parse(body, settings.max_depth)
        if isinstance(document, dict):
            values = {model.expected(name): value for name, value in document.items()}
        else:
            values = {_only(model): document}
        arrays = {}
        for number, value in values.items():
            spec, shape = model.inputs[number], tensors.shape_of(value)
            sample = len(shape) == len(spec.shape) - 1 and bool(model.batch)
            model.check_shape(number, (1, *shape) if sample else shape)
            arrays[number] = tensors.of_shape(value, spec.dtype, shape, spec.name)
    single = _single(model, arrays)
    if single:
        arrays = {number: array[None] for number, array in arrays.items()}
    for number, array in arrays.items():
        model.check_shape(number, array.shape)
    return model.arguments(arrays), single


def _only(model: Model) -> int:
    """The number of a model's one input. Raises Refused where it has not one."""
    if len(model.inputs) != 1:
        names = ", ".join(spec.name for spec in model.inputs)
        raise malformed(f"model {model.name!r} takes {len(model.inputs)} inputs. Cure: send an "
                        f"object with {names}")
    return 0


def _single(model: Model, arrays: dict[int, np.ndarray]) -> bool:
    """Whether all inputs lack the dim of the batch. Raises Refused where some do."""
    lacking = [array.ndim == len(model.inputs[number].shape) - 1
               for number, array in arrays.items()]
    if not model.batch or not any(lacking):
        return False
    if not all(lacking):
        raise malformed("some inputs have the dim of the batch, and some have not")
    return True


def encode(
    model: Model, results: tuple[np.ndarray, ...], single: bool, accept: str
) -> Response:
    """The one result as nested lists (or as a .npy file), several as an object by name."""
    if single:
        results = tuple(
            array[0] if spec.shape[:1] == model.inputs[0].shape[:1] else array
            for spec, array in zip(model.outputs, results, strict=True)
        )
    if accept == _NPY:
        return _npy_response(model, results)
    return Response(b"".join(_text(model, results)), media_type="application/json")


def _text(model: Model, results: tuple[np.ndarray, ...]) -> Iterator[bytes]:
    if len(results) == 1:
        yield from tensors.nested_text(results[0], model.outputs[0].name)
        return
    for number, (spec, array) in enumerate(zip(model.outputs, results, strict=True)):
        yield b"{" if number == 0 else b","
        yield tensors.quoted(spec.name) + b":"
        yield from tensors.nested_text(array, spec.name)
    yield b"}" if results else b"{}"


def _npy_response(model: Model, results: tuple[np.ndarray, ...]) -> Response:
    if len(results) != 1 or results[0].dtype.kind not in "biuf":
        raise Refused(406, f"the results of model {model.name!r} are not one array that a .npy "
                           "file can hold. Cure: ask for JSON")
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(results[0]), allow_pickle=False)
    return Response(file.getvalue(), media_type=_NPY)


async def _predict(request: Request) -> Response:
    state = state_of(request)
    served = state.registry.ready(*_named(request))
    model = served.model
    with share(state.memory) as mine:
        body = await read(request, state.settings, mine)
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        arguments, single = await aside(
            len(body), lambda: decode(model, body, kind, state.settings)
        )
        results = await infer(request, served, arguments)
        accept = request.headers.get("accept", "").split(";")[0].strip().lower()
        return await aside(
            text_size(results), lambda: encode(model, results, single, accept)
        )


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


# --- health and models -------------------------------------------------------------------------


async def _ping(request: Request) -> Response:
    ready = state_of(request).ready
    return JSONResponse({"status": "Healthy" if ready else "Unhealthy"}, 200 if ready else 503)


async def _models(request: Request) -> Response:
    registry = state_of(request).registry
    newest = {served.model.name: served.model for served in registry.all()}
    return JSONResponse({
        "models": [{"modelName": m.name, "modelUrl": m.file} for m in newest.values()]
    })


async def _model(request: Request) -> Response:
    registry = state_of(request).registry
    name, version = _named(request)
    versions = [version] if version else registry.versions(name)
    if not versions:
        registry.find(name)  # says that there is none
    return JSONResponse([_described(registry.find(name, each)) for each in versions])


def _described(served: Served) -> dict[str, Any]:
    model, batcher = served.model, served.batcher
    return {
        "modelName": model.name, "modelVersion": model.version, "modelUrl": model.file,
        "runtime": "graphc", "status": served.state,
        "batchSize": batcher.settings.max_batch if batcher.together else 1,
        "maxBatchDelay": batcher.settings.max_delay * 1e3,
        "batchesRequests": batcher.together, "reason": model.reason,
    }


async def _register(request: Request) -> Response:
    state = state_of(request)
    authorised(request, state)
    url = request.query_params.get("url", "")
    if "/" in url or "\\" in url or ":" in url:
        raise malformed(f"url is {shown(url)}: models are loaded from the server's folder alone. "
                        "Cure: give a file's name")
    if not url.endswith(".gcx"):
        raise malformed(f"url is {shown(url)}, and must name a .gcx file of the server's folder")
    name, _, version = url.removesuffix(".gcx").partition("@")
    asked = request.query_params.get("model_name", name)
    if asked != name:
        raise malformed(f"model_name is {shown(asked)}, but {url} holds model {name!r}")
    loaded = await state.off_loop(lambda: state.registry.load(name, version or "1"))
    found = ", ".join(f"{each.model.name} {each.model.version}" for each in loaded)
    return JSONResponse({"status": f"Model {found} registered"})


async def _unregister(request: Request) -> Response:
    state = state_of(request)
    authorised(request, state)
    name, version = _named(request)
    await state.off_loop(lambda: state.registry.remove(name, version))
    return JSONResponse({"status": f'Model "{name}" unregistered'})


_VERSION = "/{name}/{version}"

ROUTES = [
    *(route(f"/predictions{at}", _predict, methods=["POST", "PUT"])
      for at in ("/{name}", _VERSION)),
    route("/ping", _ping),
    route("/models", _models, methods=["GET"]),
    route("/models", _register, methods=["POST"]),
    *(route(f"/models{at}", _model, methods=["GET"]) for at in ("/{name}", _VERSION)),
    *(route(f"/models{at}", _unregister, methods=["DELETE"]) for at in ("/{name}", _VERSION)),
]
