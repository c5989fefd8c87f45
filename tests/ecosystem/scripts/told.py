"""How a program of the matrix says what it found: JSON lines among all else that it prints."""

import json


def tell(what, value, within=0.0):
    """Compared between the sides: numbers may be `within` apart, relative to the greatest magnitude
    in the value (0: equal); all else has to be equal. Names with "loss" are the table's losses."""
    print(json.dumps({"told": {"what": what, "value": _plain(value), "within": within}}), flush=True)


def own(what, value):
    """This side's own, compared with nothing: counts of compiled versions, seconds."""
    print(json.dumps({"told": {"what": what, "value": _plain(value)}}), flush=True)


def on_graphc():
    """Whether `torch` is graphc."""
    import torch

    return torch.__version__.endswith("+graphc")


def _plain(value):
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).tolist()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(inner) for inner in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
