"""The models that are measured on JAX, too: pure functions of torch's parameters, by its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Net = Callable[..., Any]  # (jax, parameters, x) -> logits


def inference(net: Net) -> Callable[..., Any]:
    """For Workload.jax: parameters are arguments of the compiled function, not constants."""

    def make(jax: Any, state: dict[str, Any]) -> Callable[..., Any]:
        run = jax.jit(lambda state, *inputs: net(jax, state, *inputs))
        return lambda *inputs: run(state, *inputs)

    make.jitted = True  # type: ignore[attr-defined]
    return make


def training(net: Net, update: Callable[..., Any]) -> Callable[..., Any]:
    """A step of cross-entropy whose state is donated: updated in place."""

    def make(jax: Any, state: dict[str, Any]) -> Callable[..., Any]:
        def loss(state: dict[str, Any], x: Any, target: Any) -> Any:
            logits = net(jax, state, x)
            logits = jax.numpy.moveaxis(logits, 1, -1)
            rows = jax.nn.log_softmax(logits, -1)
            return -jax.numpy.take_along_axis(rows, target[..., None], -1).mean()

        def step(state: Any, extra: Any, x: Any, target: Any) -> Any:
            value, slopes = jax.value_and_grad(loss)(state, x, target)
            return value, *update(jax, state, slopes, extra)

        run = jax.jit(step, donate_argnums=(0, 1))
        kept: list[Any] = [state, update(jax, state, None, None)]

        def call(x: Any, target: Any) -> Any:
            value, *kept[:] = run(*kept, x, target)
            return value

        return call

    make.jitted = True  # type: ignore[attr-defined]
    return make


def sgd(rate: float) -> Callable[..., Any]:
    def update(jax: Any, state: Any, slopes: Any, extra: Any) -> Any:
        if slopes is None:
            return ()
        return {name: value - rate * slopes[name] for name, value in state.items()}, extra

    return update


def adam(rate: float, decay: float = 0.0) -> Callable[..., Any]:
    """torch's Adam, and AdamW where decay is not 0."""

    def update(jax: Any, state: Any, slopes: Any, extra: Any) -> Any:
        zeros = {name: 0.0 * value for name, value in state.items()}
        if slopes is None:
            return zeros, {name: value + 0.0 for name, value in zeros.items()}, jax.numpy.zeros(())
        first, second, count = extra
        count = count + 1
        first = {n: 0.9 * m + 0.1 * slopes[n] for n, m in first.items()}
        second = {n: 0.999 * m + 0.001 * slopes[n] ** 2 for n, m in second.items()}

        def moved(name: str, value: Any) -> Any:
            divisor = (second[name] / (1 - 0.999**count)) ** 0.5 + 1e-8
            return value * (1 - rate * decay) - rate / (1 - 0.9**count) * first[name] / divisor

        return {n: moved(n, v) for n, v in state.items()}, (first, second, count)

    return update


def _linear(state: dict[str, Any], name: str, x: Any) -> Any:
    x = x @ state[f"{name}.weight"].T
    return x + state[f"{name}.bias"] if f"{name}.bias" in state else x


def mlp(jax: Any, state: dict[str, Any], x: Any) -> Any:
    names = sorted({n.rsplit(".", 1)[0] for n in state}, key=lambda n: (len(n), n))
    for name in names[:-1]:
        x = jax.nn.relu(_linear(state, name, x))
    return _linear(state, names[-1], x)


def lenet(jax: Any, state: dict[str, Any], x: Any) -> Any:
    for name in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(x, state[f"{name}.weight"], (1, 1), "VALID")
        x = jax.nn.relu(x + state[f"{name}.bias"][:, None, None])
        x = jax.lax.reduce_window(
            x, -jax.numpy.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        )
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(_linear(state, "fc1", x))
    return _linear(state, "fc3", jax.nn.relu(_linear(state, "fc2", x)))


def _norm(jax: Any, state: dict[str, Any], name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * state[f"{name}.weight"] + state[f"{name}.bias"]


def gpt(jax: Any, state: dict[str, Any], tokens: Any) -> Any:
    """../models.py's; its heads are the embedding's width over 32, or 8 at width 512."""
    batch, length = tokens.shape
    width = state["tok.weight"].shape[1]
    heads = 8 if width == 512 else width // 32
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks"))
    x = state["tok.weight"][tokens] + state["pos.weight"][:length]
    seen = jax.numpy.tril(jax.numpy.ones((length, length), bool))
    for layer in range(layers):
        at = f"blocks.{layer}"
        qkv = _linear(state, f"{at}.attn.qkv", _norm(jax, state, f"{at}.ln1", x))
        q, k, v = (
            part.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
            for part in jax.numpy.split(qkv, 3, -1)
        )
        scores = jax.numpy.einsum("bhqe,bhke->bhqk", q, k) * (width // heads) ** -0.5
        weights = jax.nn.softmax(jax.numpy.where(seen, scores, -jax.numpy.inf), -1)
        y = jax.numpy.einsum("bhqk,bhke->bqhe", weights, v).reshape(batch, length, width)
        x = x + _linear(state, f"{at}.attn.proj", y)
        h = _linear(state, f"{at}.mlp.0", _norm(jax, state, f"{at}.ln2", x))
        x = x + _linear(state, f"{at}.mlp.2", jax.nn.gelu(h, approximate=False))
    return jax.numpy.swapaxes(_norm(jax, state, "ln", x) @ state["head.weight"].T, 1, 2)


def lstm(jax: Any, state: dict[str, Any], x: Any) -> Any:
    steps = jax.numpy.swapaxes(x, 0, 1)
    for layer in (0, 1):
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        u, w, b, c = (state[f"lstm.{kind}_l{layer}"] for kind in kinds)
        parts = steps @ u.T + (b + c)

        def cell(carried: Any, part: Any, w: Any = w) -> Any:
            h, c = carried
            i, f, g, o = jax.numpy.split(part + h @ w.T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
            h = jax.nn.sigmoid(o) * jax.numpy.tanh(c)
            return (h, c), h

        zero = jax.numpy.zeros((x.shape[0], w.shape[1]), x.dtype)
        _, steps = jax.lax.scan(cell, (zero, zero), parts)
    return _linear(state, "head", steps[-1])
