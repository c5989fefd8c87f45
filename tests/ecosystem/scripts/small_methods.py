"""x-transformers, torchsde, Lion, moving averages, ensembles, hub files, pictures by albumentations."""

import json
import os
import sys
import tempfile
import types
import warnings

import torch
from told import on_graphc, tell

if not on_graphc():  # torchvision's wheel is built for another PyTorch than the CPU's: no operators
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("without_operators")
warnings.filterwarnings("ignore")

from torch import nn  # noqa: E402


def train(model, loss, n=5, opt=None, lr=1e-3):
    opt = opt or torch.optim.AdamW(model.parameters(), lr=lr)
    found = []
    for _ in range(n):
        opt.zero_grad()
        value = loss()
        value.backward()
        opt.step()
        found.append(value.item())
    return found


def x_transformers():
    from x_transformers import TransformerWrapper, Decoder, Encoder, AutoregressiveWrapper, XTransformer, ViTransformerWrapper
    torch.manual_seed(0)
    m = TransformerWrapper(num_tokens=32, max_seq_len=24, attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True, attn_flash=True))
    m = AutoregressiveWrapper(m)
    x = torch.randint(0, 32, (2, 20))
    r = [train(m, lambda: m(x))]
    m.eval(); r.append(m.generate(x[:, :4], 8, temperature=0.))
    e = TransformerWrapper(num_tokens=32, max_seq_len=24, attn_layers=Encoder(dim=32, depth=2, heads=2, attn_qk_norm=True, rel_pos_bias=True, residual_attn=True, macaron=True))
    r.append(e(x, mask=torch.ones(2, 20, dtype=torch.bool)))
    v = ViTransformerWrapper(image_size=16, patch_size=8, num_classes=5, attn_layers=Encoder(dim=32, depth=1, heads=2))
    r.append(v(torch.randn(2, 3, 16, 16)))
    t = XTransformer(dim=32, enc_num_tokens=16, enc_depth=1, enc_heads=2, enc_max_seq_len=16, dec_num_tokens=16, dec_depth=1, dec_heads=2, dec_max_seq_len=16)
    s, g = torch.randint(0, 16, (2, 10)), torch.randint(0, 16, (2, 10))
    r.append(train(t, lambda: t(s, g, mask=torch.ones_like(s).bool()), 3))
    return r


def stochastic():
    import torchsde
    torch.manual_seed(0)
    class S(nn.Module):
        noise_type = "diagonal"; sde_type = "ito"
        def __init__(self): super().__init__(); self.mu = nn.Linear(3, 3); self.si = nn.Linear(3, 3)
        def f(self, t, y): return self.mu(y)
        def g(self, t, y): return torch.sigmoid(self.si(y))
    s = S(); y0 = torch.full((4, 3), 0.1); ts = torch.linspace(0, 1, 5)
    r = []
    for method in ("euler", "milstein", "srk"):
        bm = torchsde.BrownianInterval(t0=0.0, t1=1.0, size=(4, 3), entropy=7, levy_area_approximation="space-time")
        y = torchsde.sdeint(s, y0, ts, method=method, dt=0.1, bm=bm); r.append(y[-1])
    bm = torchsde.BrownianInterval(t0=0.0, t1=1.0, size=(4, 3), entropy=7, levy_area_approximation="space-time")
    y = torchsde.sdeint_adjoint(s, y0, ts, method="euler", dt=0.1, bm=bm); y.sum().backward(); r.append(s.mu.weight.grad)
    return r


def lion():
    from lion_pytorch import Lion
    torch.manual_seed(0); m = nn.Linear(4, 1); x = torch.randn(8, 4)
    return [train(m, lambda: m(x).pow(2).mean(), 5, Lion(m.parameters(), lr=1e-2, weight_decay=1e-2))]


def averages():
    from torch_ema import ExponentialMovingAverage
    torch.manual_seed(0); m = nn.Linear(4, 1); x = torch.randn(8, 4); e = ExponentialMovingAverage(m.parameters(), decay=.9); o = torch.optim.SGD(m.parameters(), .1)
    for _ in range(4): train(m, lambda: m(x).pow(2).mean(), 1, o); e.update()
    with e.average_parameters(): r = m(x)
    return [r, m(x), sorted(e.state_dict())]


def ensemble():
    from torchensemble import VotingClassifier
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0); X = torch.randn(64, 4); Y = (X.sum(1) > 0).long(); dl = DataLoader(TensorDataset(X, Y), 16)
    class M(nn.Module):
        def __init__(s): super().__init__(); s.l = nn.Linear(4, 2)
        def forward(s, x): return s.l(x)
    v = VotingClassifier(estimator=M, n_estimators=3, cuda=False, n_jobs=1); v.set_optimizer("Adam", lr=1e-2); v.fit(dl, epochs=3, log_interval=100, save_model=False)
    return [v.predict(X[:4]), v.evaluate(dl)]


def hub_mixin():
    from huggingface_hub import PyTorchModelHubMixin
    torch.manual_seed(0)
    class M(nn.Module, PyTorchModelHubMixin, tags=["x"]):
        def __init__(s, n=3): super().__init__(); s.l = nn.Linear(n, 2)
    m = M(4); d = tempfile.mkdtemp(); m.save_pretrained(d); m2 = M.from_pretrained(d)
    return [m2.l.weight, sorted(os.listdir(d)), json.load(open(d + "/config.json"))]


def albumentations_loader():
    import numpy as np, albumentations as A
    from albumentations.pytorch import ToTensorV2
    from torch.utils.data import Dataset, DataLoader
    tf = A.Compose([A.RandomCrop(16, 16), A.HorizontalFlip(p=.5), A.Normalize(), ToTensorV2()], seed=3)
    rng = np.random.default_rng(0); pics = rng.integers(0, 255, (8, 24, 24, 3), dtype=np.uint8)
    class D(Dataset):
        def __len__(s): return 8
        def __getitem__(s, i): a = tf(image=pics[i], mask=pics[i, ..., 0]); return a["image"], a["mask"]
    return [[str(a.dtype), list(a.shape), a.sum().item(), b.double().sum().item()] for a, b in DataLoader(D(), 4)]


for part in (x_transformers, stochastic, lion, averages, ensemble, hub_mixin, albumentations_loader,):
    for k, value in enumerate(part()):
        tell(f"{part.__name__}, {k}", value, 1e-4)
