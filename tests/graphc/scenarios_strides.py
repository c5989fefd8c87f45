"""Scenarios: views by strides, of tensors whose memory is not in the order of their dims."""

from __future__ import annotations

from typing import Any

from tests.graphc.stale_scenario import stale


@stale
def as_strided_follows_the_memory(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def of_argument(x):
        return x.as_strided((2, 2), (1, 4)) * 1, x.as_strided((2, 2), (1, 4), 1) * 1

    def of_view(x):
        return x.view(2, -1).as_strided((2, 2), (1, 4)) * 1

    def written(x):
        x.as_strided((2, 2), (1, 4)).mul_(2)
        return x * 1

    def of_result(x):
        return (x * 2).t().as_strided((2, 2), (1, 4))

    whole = torch.arange(16.0).reshape(4, 4)
    return [
        compile(f)(x) for f in (of_argument, written, of_result)
        for x in (whole.clone(), whole.clone().t())
    ] + [compile(of_view)(whole.clone()), compile(of_argument)(whole.clone().t()[:, ::2])]


@stale
def as_strided_of_leaves_on_parts_of_memory(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    whole, out = torch.arange(16.0).reshape(4, 4), []
    for part in (whole[:, 1:], whole.t(), whole[1:3], whole.t()[1:]):
        x = part.requires_grad_()
        y = compile(lambda x: x.as_strided((2, 2), (1, 2)))(x)
        (y * torch.arange(1.0, 5.0).view(2, 2)).sum().backward()
        out += [y, y.requires_grad, x.grad]
    return out


@stale
def as_strided_in_another_segment(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def rows(x, cut):
        y = cut(x * 2)
        if y.sum() > 1e9:
            y = y + 1
        return y.as_strided((2, 2), (1, 2)) * 1, y.as_strided((2, 2), (1, 2), 1) * 1

    c = compile(rows)
    cuts = [
        lambda y: y, lambda y: y.t(), lambda y: y[1:], lambda y: y[:, ::2],
        lambda y: y.t().reshape(2, 2, 4), lambda y: y.view(2, 8).t(),
    ]
    return [c(torch.arange(16.0).reshape(4, 4) + i, cut) for cut in cuts for i in range(2)]


@stale
def a_size_that_is_a_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Overlapping chunks, as sliding window attention makes them."""
    def chunks(x):
        h = (x.transpose(0, 1) * 2).view(4, 3, 2, 2).transpose(0, 1).transpose(1, 2)
        h = h.reshape(6, 4, 2)
        h = h.view(6, torch.div(h.size(1), 2, rounding_mode="trunc"), 2, 2)
        strides = list(h.stride())
        strides[1] //= 2
        return h.as_strided(size=(6, 3, 2, 2), stride=strides) * 1

    c = compile(chunks)
    return [c(torch.arange(48.0).reshape(3, 4, 4) + i) for i in range(3)]


@stale
def a_reshape_that_copies_lives_on(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x.transpose(1, 2).reshape(8, 4)
        if y.sum() > 0:
            y = y + 1
        return y * 2

    c = compile(f)
    return [c(torch.arange(32.0).reshape(2, 4, 4) - 40 * i) for i in range(3)]


@stale
def one_of_overlapping_windows_is_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    functions = [
        lambda x: x.unfold(0, 2, 1)[0].zero_(),
        lambda x: x.unfold(-1, 2, 1)[:, ::2].mul_(2),
        lambda x: (x * 2).unfold(0, 3, 1)[1, :, :2].add_(1),
        lambda x: x.as_strided((3, 2), (1, 1))[0].fill_(7),
    ]
    out = []
    for function in functions:
        c = compile(lambda x, function=function: function(x) * 1)
        for k in range(3):
            x = torch.arange(16.0).reshape(4, 4) + k
            out += [c(x), x]
    return out


@stale
def a_backward_reads_what_another_argument_overwrites(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def by_value(a: Any, b: Any, w: Any) -> Any:
        kept = a.sin()
        b.mul_(2)
        return kept * w.sum()

    def by_place(a: Any, b: Any, w: Any) -> Any:
        kept = a * 2
        b[::2] = 1.0
        return torch.where(kept > kept.mean(), kept, w.sum())

    out = []
    for function in (by_value, by_place):
        c = compile(function)
        for rows in (3, 3, 4):
            base = torch.arange((rows + 1) * 3.0).reshape(-1, 3).sin()
            w = torch.ones(3, requires_grad=True)
            y = c(base[:rows], base[1:], w)
            y.square().sum().backward()
            out += [y.detach(), base, w.grad]
    return out


@stale
def views_of_what_overlaps_and_is_written_are_given_back(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def of_the_written(a: Any, b: Any) -> Any:
        a.add_(b.mean())
        return a.view(-1), a[1:], a.detach()

    def of_the_other(a: Any, b: Any) -> Any:
        a.mul_(b.amax())
        return b.t(), b[::2], a

    out = []
    for function in (of_the_written, of_the_other):
        c = compile(function)
        for rows in (3, 3, 5):
            base = torch.arange((rows + 2) * 3.0).reshape(-1, 3) / 7
            found = c(base[:rows], base[1 : rows + 1])
            out += [[x.clone() for x in found], base.clone()]
            for x in found:
                x.add_(1)
            out.append(base)
    return out


def _last(torch: Any, *shape: int) -> Any:
    """Numbers with their channels last in memory."""
    count = 1
    for size in shape:
        count *= size
    whole = torch.arange(float(count)).reshape(shape) / count
    return whole.contiguous(memory_format=torch.channels_last)


@stale
def written_where_memory_has_another_order(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def change(x, y, z):
        x.mul_(2)
        x[:, 0].add_(y[:, 0])
        z.add_(1)
        return x.sum(-1) + z, x

    c = compile(change)
    x, y = _last(torch, 2, 3, 4, 5), _last(torch, 2, 3, 4, 5)
    view, flat, seen = x[1:], x.permute(0, 2, 3, 1), []
    for _ in range(4):
        z = torch.ones(4, 3, 2).permute(2, 1, 0)
        found, same = c(x, y, z)
        seen += [found, same is x, same.stride(), view.clone(), flat.clone(), z.stride(), z]
    whole = torch.arange(16.0).reshape(4, 4)
    for _ in range(3):  # one memory, in two orders
        seen.append(c(whole.t(), whole, torch.zeros(4))[0])
    return [*seen, whole]


@stale
def another_order_at_another_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def product(x, y):
        return x @ y + x.stride(0)

    c, a = compile(product), torch.arange(12.0).reshape(3, 4)
    b = torch.arange(9.0).reshape(3, 3)
    seen = []
    for _ in range(3):
        gaps = torch.cat([a, a], 1)[:, ::2]
        for x in (a, a.t().clone().t(), a.flip(0), gaps, a[:1].expand(3, 4)):
            for y in (b, b.t()):
                seen.append(c(x.t(), y))
                seen.append(c(x.t().clone(), y))
    return [*seen, *[c(torch.ones(n, 3).t().reshape(3, n).t(), b) for n in (1, 2, 0, 5)]]


@stale
def gradients_through_memory_in_another_order(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def loss(x, w):
        return (x * w.t()).exp().sum() + (x @ w).square().sum()

    c, seen = compile(loss), []
    for _ in range(3):
        x = (torch.arange(12.0).reshape(3, 4) / 12).t().requires_grad_()
        w = (torch.arange(12.0).reshape(3, 4) / 9).requires_grad_()
        c(x, w).backward()
        (first,) = torch.autograd.grad(c(x, w), [x], create_graph=True)
        first.square().sum().backward()
        seen += [first.detach(), x.grad, w.grad]
        found = c(x, w)
        x.data.mul_(0.5)  # which autograd does not see
        found.backward()
        seen += [x.grad.clone(), w.grad.clone()]
    return seen


@stale(tolerance=5e-5)  # sums of batch normalisation's gradients that nearly cancel
def weights_with_their_channels_last(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=32),
        nn.BatchNorm2d(32), nn.Conv2d(32, 4, 1),
    ).to(memory_format=torch.channels_last)
    for i, p in enumerate(model.parameters()):
        p.data = (torch.arange(float(p.numel())).reshape(p.shape).sin() / 8 + i / 50).contiguous(
            memory_format=torch.channels_last if p.dim() == 4 else torch.contiguous_format
        )
    x, seen, c = _last(torch, 2, 16, 6, 6), [], compile(model)
    for _ in range(2):  # training
        c(x).square().mean().backward()
        seen += [p.grad.clone() for p in model.parameters()]
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            found = c(x)
            seen += [found, found.stride()]
            model[0].weight.mul_(1.5)
            model[2].weight.data = model[2].weight.data.contiguous()
            seen.append(c(x.contiguous()))
    return seen


@stale
def a_step_on_weights_with_their_channels_last(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    weight = nn.Parameter(_last(torch, 6, 3, 3, 3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = F.conv2d(x, weight).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    c, x = compile(step), _last(torch, 2, 3, 5, 5)
    return [*[c(x) for _ in range(5)], weight, weight.stride()]


@stale
def as_strided_of_views_of_leaves_on_parts_of_memory(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    whole, out = torch.arange(48.0).reshape(6, 8), []
    for part in (whole[:, ::2], whole[2:6], whole[:, 1:], whole.t()):
        for place in (((2, 2), (2, 1)), ((2, 2), (2, 4), 25), ((2,), (2,), 29)):
            x = part.detach().requires_grad_()
            y = compile(lambda x, place: x[1:].as_strided(*place) * 1)(x, place)
            (y * y).sum().backward()
            out += [y, y.requires_grad, x.grad]
    return out


@stale
def results_with_their_channels_last_and_views_of_them(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def turned(x):
        y = x.exp()
        return y, y.transpose(0, 2), y[:, 1], y.detach()

    def written(x):
        y = x * 2
        part = y[:, 0]
        part.add_(1)
        return part, y

    def without_the_whole(x):
        y = x.exp()
        return y[0], y.permute(0, 2, 3, 1), y.unsqueeze(0).expand(2, *y.shape)

    seen = []
    for f in (turned, written, without_the_whole):
        c = compile(f)
        for x in (_last(torch, 2, 5, 3, 4), _last(torch, 3, 5, 3, 4)):
            x = x.requires_grad_()
            found = c(x)
            sum(y.square().sum() for y in found if y.requires_grad).backward()
            with torch.no_grad():
                found[-1].view_as(found[-1]).mul_(3) if f is not without_the_whole else None
            seen += [*found, *[y.stride() for y in found], x.grad]
            with torch.no_grad():
                kept = c(x.detach())
                kept[0].fill_(7)
                seen += [*kept, *[y.stride() for y in kept]]
    return seen
