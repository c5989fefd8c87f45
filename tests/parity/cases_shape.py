"""Views, rearrangements, joining."""

from tests.parity.records import ALL, NUMBERS, bools, case, integers, real

_X = real(2, 3, 4)


def _view(name, run, *inputs):  # type: ignore[no-untyped-def]
    case(name, run, *(inputs or (_X,)), strides=True)


_view("view", lambda t, x: (x.view(6, 4), x.view(-1), x.view((2, 12)), x.view(2, -1, 2)))
_view("view_as", lambda t, x: (x.view_as(x.reshape(4, 6)), x.reshape_as(x.view(24))))
case("view dtype", lambda t, x: (x.view(t.int32), x.detach().view(t.uint8)), real(2, 3),
     grad=False, segments="reads bytes")
_view("reshape", lambda t, x: (x.reshape(6, 4), t.reshape(x, (-1,)), x.reshape([3, 8])))
case("reshape permuted", lambda t, x: (x.permute(2, 0, 1).reshape(4, 6), x.mT.reshape(-1)), _X)
_view("flatten", lambda t, x: (x.flatten(), x.flatten(1), t.flatten(x, 0, 1), x.flatten(-2)))
case("ravel", lambda t, x: (x.ravel(), x.mT.ravel()), _X)
_view("unflatten", lambda t, x: (x.unflatten(2, (2, 2)), x.unflatten(-1, (-1, 2))))
_view("squeeze", lambda t, x: (x.squeeze(), x.squeeze(1), x.squeeze(0), x.squeeze((1, 3)),
                               t.squeeze(x, -1), x.squeeze(dim=1)), real(2, 1, 3, 1))
_view("unsqueeze", lambda t, x: (x.unsqueeze(0), x.unsqueeze(-1), t.unsqueeze(x, 2), x[None]))
_view("permute", lambda t, x: (x.permute(2, 0, 1), t.permute(x, (1, 0, 2)), x.permute(-1, 0, 1)))
_view("transpose", lambda t, x: (x.transpose(0, 1), t.transpose(x, -1, 0), x.swapaxes(0, 2), x.mT))
_view("t", lambda t, x: (x.t(), x.T, t.t(x), x[0].t()), real(3, 4))
_view("movedim", lambda t, x: (x.movedim(0, 2), t.movedim(x, (0, 1), (2, 0)), x.moveaxis(-1, 0)))
_view("narrow", lambda t, x: (x.narrow(1, 1, 2), t.narrow(x, 0, 0, 1), x.narrow(2, -3, 2)))
_view("select", lambda t, x: (x.select(1, 2), t.select(x, 0, -1)))
_view("unbind", lambda t, x: (x.unbind(), t.unbind(x, 1)))
_view("split", lambda t, x: (x.split(2, 2), t.split(x, [1, 2], dim=1), x.split(3, dim=2)))
_view("chunk", lambda t, x: (x.chunk(2, 2), t.chunk(x, 3, dim=2), x.chunk(2)))
_view("tensor_split", lambda t, x: (x.tensor_split(3, 2), t.tensor_split(x, [1, 3], dim=2)))
_view("expand", lambda t, x: (x.expand(2, 3, 4), x.expand(5, -1, -1, 4), x.expand((2, 3, 4)),
                              x.expand_as(t.zeros(2, 3, 4)), t.broadcast_to(x, (2, 3, 4))),
      real(1, 3, 1))
_view("broadcast_tensors", lambda t, x, y: t.broadcast_tensors(x, y), real(3, 1), real(4))
case("repeat", lambda t, x: (x.repeat(2, 1), x.repeat(2, 3, 1), x.repeat((1, 2))), real(2, 3),
     dtypes=ALL)
case("tile", lambda t, x: (x.tile(2), x.tile((2, 1)), t.tile(x, (2, 1, 2))), real(2, 3))
case("repeat_interleave", lambda t, x: (x.repeat_interleave(2), x.repeat_interleave(2, 0),
                                        t.repeat_interleave(x, 3, dim=1)), real(2, 3),
     dtypes=NUMBERS)
case("repeat_interleave tensor", lambda t, x, n: (x.repeat_interleave(n, dim=0),
                                                 t.repeat_interleave(n)), real(3, 2), integers(3),
     segments="size depends on values")
_view("diagonal", lambda t, x: (x.diagonal(), x.diagonal(1), x.diagonal(-1, 1, 2),
                                t.diagonal(x, 0, 0, 2), x.mT.diagonal(0, 1, 2)))
_view("diagonal of view", lambda t, x: (x[1:, 1:].diagonal(), x.t()[1:].diagonal(1)), real(4, 4))
case("diag", lambda t, x: (t.diag(x), x.diag(1), x[0].diag(), t.diag(x[0], -1)), real(3, 3))
case("diag_embed", lambda t, x: (t.diag_embed(x), t.diag_embed(x, 1), t.diag_embed(x, -1),
                                 t.diag_embed(x, 0, 0, 2), t.diagflat(x)), real(2, 3))
_view("unfold", lambda t, x: (x.unfold(2, 2, 1), x.unfold(2, 3, 1), x.unfold(1, 2, 1),
                              x.mT.unfold(1, 2, 2)))
_view("as_strided", lambda t, x: (x.as_strided((2, 2), (4, 1), 1), t.as_strided(x, (3,), (5,)),
                                  x.as_strided((3, 3), (1, 1))))
case("as_strided of view", lambda t, x: (x[1].as_strided((2, 2), (4, 1)),
                                         x.t().as_strided((3,), (1,), 2)), real(3, 4),
     grad=False)  # torch drops the gradient of what lies outside the view
case("cat", lambda t, x, y: (t.cat([x, y]), t.cat((x, y[:2, :1]), dim=1), t.cat([x, x], -1),
                             t.concat([x, y], axis=0)), real(2, 3), real(4, 3), dtypes=ALL)
case("cat promote", lambda t, x, i: t.cat([x, i]), real(2, 3), integers(4, 3))
case("cat empty", lambda t, x: (t.cat([t.zeros(0), x]), t.cat([x[:0], x])), real(2, 3))
case("stack", lambda t, x, y: (t.stack([x, y]), t.stack((x, y), dim=-1), t.stack([x, y], 1)),
     real(2, 3), real(2, 3), dtypes=NUMBERS)
case("hstack", lambda t, x, y: (t.hstack([x, y]), t.vstack([x, y]), t.dstack([x, y]),
                                t.column_stack([x[0], y[0]]), t.hstack([x[0], y[0]])), real(2, 3),
     real(2, 3))
case("atleast", lambda t, x: (t.atleast_1d(x[0, 0]), t.atleast_2d(x[0]), t.atleast_3d(x)),
     real(2, 3))
case("flip", lambda t, x: (x.flip(0), t.flip(x, (0, 2)), x.flip(-1, 1), x.fliplr(), x.flipud()), _X)
case("roll", lambda t, x: (x.roll(1), x.roll(1, 0), t.roll(x, (1, -1), (0, 2)), x.roll(5, 1),
                           x.roll(0, 0)), _X)
case("rot90", lambda t, x: (x.rot90(), x.rot90(2), t.rot90(x, 3, (0, 1)), x.rot90(-1)), real(2, 3))
case("tril", lambda t, x: (x.tril(), x.triu(), t.tril(x, 1), t.triu(x, diagonal=-1), x.tril(-2)),
     real(2, 3, 4), dtypes=ALL)
case("meshgrid", lambda t, x, y: (t.meshgrid(x, y, indexing="ij"),
                                  t.meshgrid([x, y], indexing="xy")), real(3), real(4))
case("cartesian_prod", lambda t, x, y: t.cartesian_prod(x, y), real(3), real(2))
case("block_diag", lambda t, x, y: t.block_diag(x, y), real(2, 3), real(1, 2))
case("contiguous", lambda t, x: (x.mT.contiguous(), x.contiguous(), x[:, 1:].contiguous(),
                                 x.permute(2, 0, 1).clone()), _X, strides=True)
case("channels_last", lambda t, x: (
    x.contiguous(memory_format=t.channels_last), x.to(memory_format=t.channels_last),
    x.is_contiguous(memory_format=t.channels_last),
    x.contiguous(memory_format=t.channels_last).is_contiguous(memory_format=t.channels_last),
    x.contiguous(memory_format=t.channels_last).contiguous()), real(2, 3, 4, 5), strides=True)
case("is_contiguous", lambda t, x: [
    y.is_contiguous() for y in (x, x.mT, x[:, :1], x[:1], x.expand(2, 2, 3, 4))], _X, grad=False)
case("stride", lambda t, x: (x.stride(), x.mT.stride(), x[1].stride(0)), _X, grad=False)
case("storage_offset", lambda t, x: (x.storage_offset(), x[:, 1:].storage_offset()), _X,
     grad=False, segments="where an input lies differs from call to call")
case("scatters", lambda t, x, y: (t.select_scatter(x, y, 0, 1), t.diagonal_scatter(x, y[:3]),
                                  t.slice_scatter(x, x[:1] * 2, 0, 1, 2)), real(3, 4), real(4))
case("fill_diagonal_", lambda t, x: (x * 1).fill_diagonal_(3), real(4, 4))
case("size", lambda t, x: (x.size(), x.size(1), x.shape, x.dim(), x.ndim, x.numel(), len(x),
                           x.nelement(), t.numel(x), x.shape[1:], x.size(dim=-1)), _X, grad=False)
case("bool shape ops", lambda t, m: (m.view(-1), m.t(), t.stack([m, m]), m.flip(0), m.roll(1)),
     bools(2, 3), grad=False)
