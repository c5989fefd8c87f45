"""botorch's optimization of a Gaussian process; opacus' private training."""

import sys
import types
import warnings

import torch
from told import on_graphc, tell

if not on_graphc():  # torchvision's wheel is built for another PyTorch than the CPU's: no operators
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("without_operators")
warnings.filterwarnings("ignore")

from torch import nn  # noqa: E402


def botorch():
    from botorch.models import SingleTaskGP
    from botorch.fit import fit_gpytorch_mll
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood
    torch.manual_seed(0)
    X = torch.rand(10, 2, dtype=torch.double); Y = 1 - (X - 0.5).norm(dim=-1, keepdim=True)
    gp = SingleTaskGP(X, Y); fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
    r = [[p for p in map(lambda p: p.detach(), gp.parameters())], gp.posterior(X[:3]).mean]
    a = LogExpectedImprovement(gp, best_f=Y.max()); r.append(a(X[:4, None]))
    torch.manual_seed(1)
    c, v = optimize_acqf(a, bounds=torch.stack([torch.zeros(2), torch.ones(2)]).double(), q=1, num_restarts=2, raw_samples=8); r += [c, v]
    return r


def opacus():
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    X = torch.randn(64, 1, 8, 8); Y = torch.randint(0, 2, (64,))
    m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)); o = torch.optim.SGD(m.parameters(), 0.1)
    dl = DataLoader(TensorDataset(X, Y), 16); pe = PrivacyEngine()
    m, o, dl = pe.make_private(module=m, optimizer=o, data_loader=dl, noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False)
    r = []
    for x, y in dl:
        o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(); o.step(); r.append(l.item())
    return [r, pe.get_epsilon(1e-5)]


for part in (botorch, opacus,):
    for k, value in enumerate(part()):
        tell(f"{part.__name__}, {k}", value, 1e-4)
