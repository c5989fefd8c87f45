"""gpytorch: exact and variational Gaussian processes, kernels, likelihoods, samples."""

import warnings

import gpytorch
import linear_operator  # noqa: F401
import torch
from told import tell

warnings.filterwarnings("ignore")
torch.manual_seed(0)
x = torch.linspace(0, 1, 30)
y = torch.sin(x * 6.28) + 0.1 * torch.randn(30)
grid = torch.linspace(-0.2, 1.2, 9)


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel=None):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel or gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit(model, likelihood, steps=15, x=x, y=y):
    model.train(), likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval(), likelihood.eval()
    return losses


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Exact(x, y, likelihood)
tell("exact losses", fit(model, likelihood), 1e-3)
with torch.no_grad(), gpytorch.settings.fast_pred_var(False):
    predicted = likelihood(model(grid))
    tell("exact mean", predicted.mean, 1e-3)
    tell("exact variance", predicted.variance, 5e-3)
    tell("confidence", predicted.confidence_region(), 5e-3)
    torch.manual_seed(1)
    tell("samples", model(grid).rsample(torch.Size([2])), 5e-2)
tell("parameters", {name: value.detach() for name, value in model.named_parameters()}, 1e-3)
tell("state", sorted(model.state_dict()))
with torch.no_grad():
    updated = model.get_fantasy_model(torch.tensor([0.5]), torch.tensor([0.2]))
    tell("fantasy", updated(grid).mean, 1e-2)

kernels = gpytorch.kernels
for name, kernel in {
    "matern": kernels.MaternKernel(1.5), "matern 2.5": kernels.MaternKernel(2.5, ard_num_dims=1), "periodic": kernels.PeriodicKernel(),
    "rq": kernels.RQKernel(), "linear": kernels.LinearKernel(), "polynomial": kernels.PolynomialKernel(2), "cosine": kernels.CosineKernel(),
    "sum": kernels.RBFKernel() + kernels.LinearKernel(), "product": kernels.RBFKernel() * kernels.PeriodicKernel(), "mixture": kernels.SpectralMixtureKernel(2),
    "piecewise": kernels.PiecewisePolynomialKernel(q=1), "arc": kernels.ArcKernel(kernels.RBFKernel(), angle_prior=gpytorch.priors.GammaPrior(0.5, 1)),
}.items():
    try:
        given = x[:, None][:6].clone().requires_grad_()
        matrix = kernel(given).to_dense()
        matrix.sum().backward()
        tell(f"kernel {name}", [matrix, given.grad], 1e-3)
    except Exception as error:
        tell(f"kernel {name} stops", f"{type(error).__name__}: {error}"[:200])


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points, whiten=True):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        strategy = (gpytorch.variational.VariationalStrategy if whiten else gpytorch.variational.UnwhitenedVariationalStrategy)(self, points, distribution, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernels.ScaleKernel(kernels.MaternKernel(2.5))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


# in float32, ten of Adam's steps make large differences of the last bits
x64, grid64 = x.double(), grid.double()
for name, target, likelihood, whiten in (
    ("regression", y, gpytorch.likelihoods.GaussianLikelihood(), True), ("classification", (y > 0).float(), gpytorch.likelihoods.BernoulliLikelihood(), False),
):
    torch.manual_seed(0)
    model, likelihood, target = Variational(torch.linspace(0, 1, 7), whiten).double(), likelihood.double(), target.double()
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=30)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = -objective(model(x64), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"variational {name} losses", losses, 1e-6)
    with torch.no_grad():
        tell(f"variational {name}", likelihood(model.eval()(grid64)).mean, 1e-5)

torch.manual_seed(0)
tasks = torch.stack([y, -y], 1)


class Multitask(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), 2)
        self.covar_module = kernels.MultitaskKernel(kernels.RBFKernel(), num_tasks=2, rank=1)

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
multitask = Multitask(x, tasks, likelihood)
tell("multitask losses", fit(multitask, likelihood, 5, x, tasks), 2e-3)
with torch.no_grad():
    tell("multitask", likelihood(multitask(grid)).mean, 1e-2)

torch.manual_seed(0)
base = torch.randn(6, 6)
spd = linear_operator.to_linear_operator(base @ base.T + 6 * torch.eye(6))
vector = torch.randn(6, 2)
tell("solve", spd.solve(vector), 1e-3)
tell("logdet", spd.logdet(), 1e-3)
tell("inv_quad_logdet", spd.inv_quad_logdet(vector, logdet=True), 1e-3)
tell("cholesky", spd.cholesky().to_dense(), 1e-3)
tell("diagonal", [spd.diagonal(), (spd @ vector), spd.add_diagonal(torch.ones(6)).to_dense(), spd.mul(2.0).to_dense()], 1e-4)
tell("root", spd.root_decomposition().to_dense(), 1e-3)
for name, run in {
    "cholesky": lambda: torch.linalg.cholesky(spd).to_dense(), "solve": lambda: torch.linalg.solve(spd, vector),
    "diagonal": lambda: torch.diagonal(spd, dim1=-2, dim2=-1), "matmul": lambda: torch.matmul(base, spd),
}.items():  # LinearOperators answer for torch's functions
    try:
        tell(f"torch's {name}", run(), 1e-3)
    except TypeError as error:
        tell(f"torch's {name} stops", str(error))
prior = gpytorch.priors.LogNormalPrior(0.0, 1.0)
tell("prior", [prior.log_prob(torch.tensor([0.5, 2.0])), prior.rsample(torch.Size([3])).shape], 1e-4)
