"""einops: operations, layers, packing, einsum, compiled."""

import einops
import torch
from einops import asnumpy, einsum, pack, parse_shape, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from told import tell
from torch import nn

torch.manual_seed(0)
x = torch.randn(2, 3, 8, 6)
for pattern, sizes in (("b c h w -> b h w c", {}), ("b c h w -> b (c h w)", {}), ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 3}), ("(a b) c h w -> a (b c) h w", {"b": 2}), ("b ... -> ... b", {}), ("b c h w -> b 1 c (h w)", {})):
    tell(f"rearrange {pattern}", rearrange(x, pattern, **sizes))
for pattern, how in (("b c h w -> b c", "mean"), ("b c (h 2) (w 2) -> b c h w", "max"), ("b c h w -> b 1 h", "sum"), ("b ... -> b", "prod"), ("b c h w -> ", "min"), ("b c h w -> c", torch.amax), ("b c h w -> h", lambda t, dims: t.mean(dims))):
    tell(f"reduce {pattern}", reduce(x, pattern, how), 1e-5)
tell("booleans", [reduce(x > 0, "b c h w -> b c", "any"), reduce(x > -9, "b c h w -> b c", "all")])
tell("repeat", [repeat(x[0, 0], "h w -> h (r w) c", r=2, c=3), repeat(x[0, 0, 0], "w -> (w r)", r=2)])
tell("list", rearrange([x, x + 1], "n b c h w -> b (n c) h w").shape)
tell("einsum", einsum(x, torch.randn(5, 6), "b c h w, o w -> b c h o"), 1e-5)
packed, shapes = pack([x, x[:, :, 0]], "b c *")
tell("pack", [packed, [list(s) for s in shapes], [part.shape for part in unpack(packed, shapes, "b c *")]])
tell("shape", parse_shape(x, "b _ h w"))
tell("numpy", asnumpy(x).sum(), 1e-5)
for pattern in ("b c h w -> b c", "b c h -> b c h", "b c h w -> b (c h w d)"):
    try:
        rearrange(x, pattern)
    except einops.EinopsError as error:
        tell(f"refused {pattern}", type(error).__name__)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), Reduce("b c (h 2) (w 2) -> b c h w", "max"), Rearrange("b c h w -> b (h w) c"),
            EinMix("b t c -> b t o", weight_shape="c o", bias_shape="o", c=8, o=4), EinMix("b t (g c) -> b t (g o)", weight_shape="g c o", g=2, c=2, o=3), nn.GELU(), Reduce("b t c -> b c", "mean"),
        )

    def forward(self, x):
        return self.layers(x)


for compiled in (False, True):
    torch.manual_seed(1)
    net = Net()
    run = torch.compile(net) if compiled else net
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    losses = []
    for _ in range(4):
        loss = run(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"losses, {'compiled' if compiled else 'eager'}", losses, 1e-4)
tell("text", [str(net.layers[1]), str(net.layers[3])])
