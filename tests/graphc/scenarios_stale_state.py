"""(1) State that becomes a tensor, caches, averages, swaps; (2) backward on outside history."""

from __future__ import annotations

from typing import Any

from tests.graphc.stale_scenario import Box, attempt, stale


def row(torch: Any, i: float) -> Any:
    return torch.arange(3.0) * 0.5 + i


def calls(torch: Any, function: Any, state: Any, names: str, count: int = 5) -> list[Any]:
    """Results of some calls, with the state's attributes after each."""
    out = []
    for i in range(count):
        out.append(function(row(torch, i)))
        out += [getattr(state, name) for name in names.split()]
    return out


@stale
def none_becomes_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(h=None)

    def f(x):
        s.h = x * 2 + (s.h if s.h is not None else 0)
        return s.h + 1

    c = compile(f)
    out = calls(torch, c, s, "h")
    s.h = None
    return out + calls(torch, c, s, "h", 3)


@stale
def zero_becomes_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(h=0)

    def f(x):
        s.h = s.h * 0.5 + x
        return s.h

    c = compile(f)
    out = calls(torch, c, s, "h")
    s.h = 0
    return out + calls(torch, c, s, "h", 3)


@stale
def float_becomes_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(total=0.0, n=0)

    def f(x):
        s.total += x.sum()
        s.n += 1
        return s.total / s.n

    c = compile(f)
    out = calls(torch, c, s, "total n")
    s.total, s.n = 0.0, 0
    return out + calls(torch, c, s, "total n", 3)


@stale
def closure_becomes_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    h = None

    def f(x):
        nonlocal h
        h = x if h is None else h * 0.5 + x
        return h * 2

    c = compile(f)
    out = []
    for i in range(5):
        out += [c(row(torch, i)), h]
    h = None
    for i in range(3):
        out += [c(row(torch, i)), h]
    return out


@stale
def attribute_only_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(last=None, n=0)

    def f(x):
        s.last = x * 2
        s.n += 1
        return x

    return calls(torch, compile(f), s, "last n")


@stale
def kv_cache(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(k=None, v=None)

    def f(x):
        k, v = x[None], x[None] * 2
        if s.k is not None:
            k, v = torch.cat([s.k, k]), torch.cat([s.v, v])
        s.k, s.v = k, v
        return (k @ x).softmax(0) @ v

    c = compile(f)
    out = calls(torch, c, s, "k v")
    s.k = s.v = None
    return out + calls(torch, c, s, "k v", 4)


@stale
def kv_cache_list(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    cache: list[Any] = []

    def f(x):
        cache.append(x * 1)
        return torch.stack(cache).sum(0)

    c = compile(f)
    out = [c(row(torch, i)) for i in range(5)]
    del cache[1:]
    return [*out, c(row(torch, 9)), len(cache), cache[0]]


@stale
def static_cache_position(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(cache=torch.zeros(6, 3), at=0)

    def f(x):
        s.cache[s.at] = x
        s.at += 1
        return s.cache[: s.at].sum(0)

    c = compile(f)
    out = calls(torch, c, s, "cache at", 4)
    s.at = 0
    return out + calls(torch, c, s, "cache at", 3)


@stale
def truncated_backpropagation(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    cell = nn.RNNCell(3, 3)
    opt = torch.optim.SGD(cell.parameters(), lr=0.1)
    s = Box(h=None)

    def step(x):
        h = torch.zeros(2, 3) if s.h is None else s.h.detach()
        s.h = cell(x, h)
        loss = s.h.square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    c = compile(step)
    out = []
    for i in range(5):
        out += [c(row(torch, i * 0.1).expand(2, 3)), s.h]
    s.h = None
    return [*out, c(torch.ones(2, 3)), s.h, *cell.parameters()]


@stale
def average_of_weights(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    s = Box(shadow=None, decay=0.5)

    def step(x):
        w.grad = None
        (w * x).sum().backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
            s.shadow = w.clone() if s.shadow is None else s.shadow.lerp(w, 1 - s.decay)
        return s.shadow * 1

    c = compile(step)
    out = calls(torch, c, s, "shadow")
    s.decay = 0.25
    return out + calls(torch, c, s, "shadow", 3)


@stale
def own_momentum(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    velocity: dict[Any, Any] = {}

    def step(x, lr):
        (w * w * x).sum().backward()
        with torch.no_grad():
            v = velocity.get(w)
            velocity[w] = w.grad.clone() if v is None else v.mul_(0.5).add_(w.grad)
            w.sub_(lr * velocity[w])
        w.grad = None
        return w * 1

    c = compile(step)
    out = [[c(row(torch, i * 0.1), 0.1 / (i + 1)), velocity[w]] for i in range(5)]
    velocity.clear()
    return [*out, c(row(torch, 1), 0.1), velocity[w], len(velocity)]


@stale
def swapped_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(a=torch.zeros(3), b=torch.ones(3))

    def f(x):
        s.a, s.b = s.b, s.a
        return s.a * 10 + s.b + x

    c = compile(f)
    out = calls(torch, c, s, "a b")
    s.a, s.b = s.b, s.a
    return out + calls(torch, c, s, "a b", 2)


@stale
def rotated_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(a=torch.zeros(3), b=torch.ones(3), c=torch.full((3,), 2.0))
    first = s.a

    def f(x):
        s.a, s.b, s.c = s.b, s.c, s.a
        s.a.add_(x)
        return s.a * 100 + s.b * 10 + s.c

    c = compile(f)
    return [*calls(torch, c, s, "a b c"), first, first is s.b, first is s.a]


@stale
def rotated_list(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    buffers = [torch.full((3,), float(i)) for i in range(3)]

    def f(x):
        buffers.append(buffers.pop(0))
        return buffers[0] + x

    c = compile(f)
    return [[c(row(torch, i)), list(buffers)] for i in range(5)]


@stale
def history_of_two(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(before=torch.zeros(3), now=torch.zeros(3))

    def f(x):
        s.before, s.now = s.now, x * 1
        return s.now - s.before

    return calls(torch, compile(f), s, "before now")


# --- (2) backward on a loss whose history lies outside -------------------------------------------


@stale
def backward_of_an_argument(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    c = compile(lambda loss: loss.backward())
    out = []
    for i in range(4):
        c((w * row(torch, i)).sum())
        out.append(w.grad.clone())
    return out


@stale
def backward_of_part_outside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w, v = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def f(h):
        loss = (h * v).sum() * 2
        loss.backward()
        return loss

    c = compile(f)
    out = []
    for i in range(4):
        out += [c(w * row(torch, i)), w.grad.clone(), v.grad.clone()]
    return out


@stale
def backward_of_a_kept_loss(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    s = Box(loss=None)

    def f(x):
        if s.loss is not None:
            s.loss.backward()
        s.loss = (w * x).sum()
        return s.loss

    c = compile(f)
    out = []
    for i in range(5):
        out += [c(row(torch, i)), None if w.grad is None else w.grad.clone()]
    return out


@stale
def backward_twice(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    c = compile(lambda loss: loss.backward())
    out = []
    for _ in range(3):
        loss = (w * w).sum()
        out += [attempt(c, loss), attempt(c, loss), w.grad.clone()]
    return out


@stale
def backward_with_retained_graph(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))

    def f(loss):
        loss.backward(retain_graph=True)
        return w.grad * 1

    c = compile(f)
    loss = (w * w).sum()
    return [c(loss), c(loss), c(loss * 2)]


@stale
def grad_of_outside_history(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    c = compile(lambda y: torch.autograd.grad(y.sum(), [w])[0] * 2)
    return [c(w * w * row(torch, i)) for i in range(4)]


@stale
def hidden_state_with_history(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    s = Box(h=torch.zeros(3))

    def f(x):
        s.h = s.h * 0.5 + w * x
        return s.h.sum()

    c = compile(f)
    out = []
    for i in range(3):
        loss = c(row(torch, i))
    loss.backward()
    out += [loss, w.grad.clone(), s.h.requires_grad]
    s.h = s.h.detach()
    c(row(torch, 1)).backward()
    return [*out, w.grad]


@stale
def truncated_backpropagation_over_calls(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    cell = nn.RNNCell(3, 4)
    opt = torch.optim.SGD(cell.parameters(), 0.1)
    s = Box(h=torch.zeros(2, 4))

    def f(x):
        s.h = cell(x, s.h)
        return (s.h**2).sum()

    c = compile(f)
    out = []
    loss = torch.zeros(())
    for i in range(12):
        loss = loss + c(torch.ones(2, 3) * i * 0.1)
        if i % 3 == 2:
            opt.zero_grad()
            loss.backward()
            out += [loss, *(p.grad.clone() for p in cell.parameters())]
            opt.step()
            s.h = s.h.detach()
            loss = torch.zeros(())
    return out


@stale
def second_derivative_through_hidden_states(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    w = nn.Parameter(torch.ones(3))
    s = Box(h=torch.zeros(3))

    def f(x):
        s.h = torch.tanh(s.h * 0.5 + w * x)
        return s.h.sum()

    c = compile(f)
    for i in range(6):
        y = c(row(torch, i) * 0.1)
    (g,) = torch.autograd.grad(y, w, create_graph=True)
    (g**2).sum().backward()
    return [g, w.grad]


@stale
def hidden_state_becomes_a_leaf(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(h=torch.zeros(3, requires_grad=True))

    def f(x):
        s.h = s.h * 0.5 + x
        return s.h.sum()

    c = compile(f)
    for i in range(6):
        if i == 3:
            leaf = s.h = torch.ones(3, requires_grad=True)
        y = c(row(torch, i))
    y.backward()
    return [leaf.grad, s.h, y]


@stale
def saved_hidden_state_is_written_to(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    s = Box(h=torch.zeros(3))

    def f(x):
        s.h = torch.exp(s.h * w) + x
        return (s.h * s.h).sum()

    c = compile(f)
    for i in range(4):
        y = c(row(torch, i) * 0.1)
    with torch.no_grad():
        s.h.add_(1)
    return attempt(y.backward)


@stale
def one_tensor_in_two_places(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    zeros = torch.zeros(3)
    s = Box(a=zeros, b=zeros, pair=(zeros,))

    def f(x):
        s.a = s.a + x
        return s.a - s.b - s.pair[0]

    return calls(torch, compile(f), s, "a b", 6)


@stale
def the_old_state_is_given_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(a=torch.zeros(3))
    out = []

    def f(x):
        old = s.a
        s.a = old + x
        return old.view(3, 1), old

    c = compile(f)
    for i in range(6):
        view, old = c(row(torch, i))
        old.add_(100)
        out += [view.clone(), old.clone(), s.a.clone()]
    return out


@stale
def none_then_int_then_float_then_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(v=None)

    def f(x):
        if s.v is None:
            s.v = 0
        elif isinstance(s.v, int):
            s.v = 1.5
        elif isinstance(s.v, float):
            s.v = x * 2
        else:
            s.v = s.v + 1
        return x + s.v

    return calls(torch, compile(f), s, "v", 6)
