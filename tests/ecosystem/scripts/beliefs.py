"""Pyro: stochastic variational inference, HMC, predictions."""

import warnings

warnings.filterwarnings("ignore")

import pyro  # noqa: E402
import pyro.distributions as dist  # noqa: E402
import torch  # noqa: E402
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, TraceMeanField_ELBO, config_enumerate  # noqa: E402
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal, AutoLowRankMultivariateNormal, AutoMultivariateNormal  # noqa: E402
from pyro.nn import PyroModule, PyroSample  # noqa: E402
from pyro.optim import Adam, ClippedAdam  # noqa: E402
from told import tell  # noqa: E402
from torch import nn  # noqa: E402

pyro.set_rng_seed(0)
points = torch.randn(40, 2)
seen = points @ torch.tensor([1.5, -0.5]) + 0.3 + 0.1 * torch.randn(40)


def line(points, seen=None):
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    start = pyro.sample("start", dist.Normal(0.0, 1.0))
    noise = pyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    with pyro.plate("data", len(points)):
        return pyro.sample("seen", dist.Normal(points @ slope + start, noise), obs=seen)


for guide in (AutoDelta, AutoDiagonalNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal):
    for loss in (Trace_ELBO(), TraceMeanField_ELBO()) if guide is AutoDiagonalNormal else (Trace_ELBO(),):
        pyro.clear_param_store()
        pyro.set_rng_seed(1)
        made = guide(line)
        svi = SVI(line, made, ClippedAdam({"lr": 0.02}), loss)
        losses = [svi.step(points, seen) for _ in range(25)]
        tell(f"losses, {guide.__name__}, {type(loss).__name__}", losses, 2e-3)
        tell(f"median, {guide.__name__}, {type(loss).__name__}", dict(sorted(made.median().items())), 5e-3)
drawn = Predictive(line, guide=made, num_samples=20)(points)
tell("predicted", {key: list(value.shape) for key, value in sorted(drawn.items())})

pyro.set_rng_seed(2)
chain = MCMC(NUTS(line, max_tree_depth=4), num_samples=20, warmup_steps=20, disable_progbar=True)
chain.run(points, seen)
tell("chain", {key: list(value.shape) for key, value in sorted(chain.get_samples().items())})
near = chain.get_samples()["slope"].mean(0) - torch.tensor([1.5, -0.5])
tell("near", bool(near.abs().max() < 0.3))


@config_enumerate
def mixture(data):
    weights = pyro.param("weights", torch.ones(2) / 2, constraint=dist.constraints.simplex)
    centres = pyro.param("centres", torch.tensor([-1.0, 1.0]))
    with pyro.plate("data", len(data)):
        kind = pyro.sample("kind", dist.Categorical(weights))
        pyro.sample("seen", dist.Normal(centres[kind], 0.5), obs=data)


pyro.clear_param_store()
svi = SVI(mixture, lambda data: None, Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1))
tell("losses, enumerated", [svi.step(seen) for _ in range(20)], 1e-3)
tell("parameters", {key: value.detach() for key, value in sorted(pyro.get_param_store().items())}, 1e-3)


class Net(PyroModule):
    def __init__(self):
        super().__init__()
        self.first = PyroModule[nn.Linear](2, 4)
        self.first.weight = PyroSample(dist.Normal(0.0, 1.0).expand([4, 2]).to_event(2))
        self.last = PyroModule[nn.Linear](4, 1)

    def forward(self, points, seen=None):
        mean = self.last(torch.tanh(self.first(points))).squeeze(-1)
        with pyro.plate("data", len(points)):
            return pyro.sample("seen", dist.Normal(mean, 0.2), obs=seen)


pyro.clear_param_store()
pyro.set_rng_seed(3)
net = Net()
svi = SVI(net, AutoDiagonalNormal(net), Adam({"lr": 0.01}), Trace_ELBO())
tell("losses, network", [svi.step(points, seen) for _ in range(20)], 2e-3)
trace = pyro.poutine.trace(pyro.poutine.condition(line, {"start": torch.tensor(0.1)})).get_trace(points, seen)
trace.compute_log_prob()
tell("trace", sorted(trace.nodes))
