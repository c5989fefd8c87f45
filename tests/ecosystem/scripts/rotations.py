"""e3nn, opt_einsum and jaxtyping with beartype: rotations that hold, contractions, checked shapes."""

import warnings

warnings.filterwarnings("ignore")

import opt_einsum  # noqa: E402
import torch  # noqa: E402
from beartype import beartype  # noqa: E402
from jaxtyping import Bool, Float, Int, jaxtyped  # noqa: E402
from told import tell  # noqa: E402

# --- shapes that are checked -----------------------------------------------------------------


@jaxtyped(typechecker=beartype)
def scaled(x: Float[torch.Tensor, "batch width"], w: Float[torch.Tensor, "width"], keep: Bool[torch.Tensor, "batch"], at: Int[torch.Tensor, "k"]) -> Float[torch.Tensor, "batch width"]:
    return torch.where(keep[:, None], x * w, 0.0) + at.sum()


x, w, keep = torch.ones(2, 3), torch.arange(3.0), torch.tensor([True, False])
tell("checked", scaled(x, w, keep, torch.tensor([1, 2])))
for wrong in ((x, w[:2], keep, torch.tensor([1])), (x.double().long(), w, keep, torch.tensor([1])), (x[0], w, keep, torch.tensor([1])), (x, w, keep, w)):
    try:
        scaled(*wrong)
        tell("refused", False)
    except Exception as error:
        tell("refused", type(error).__name__)
tell("isinstance", [isinstance(x, Float[torch.Tensor, "a b"]), isinstance(x, Float[torch.Tensor, "a"]), isinstance(x, Int[torch.Tensor, "..."])])

# --- contractions ----------------------------------------------------------------------------

torch.manual_seed(0)
a, b, c = torch.randn(4, 5), torch.randn(5, 6), torch.randn(6, 4)
for pattern, given in (("ij,jk,kl->il", (a, b, c)), ("ij,jk,ki->", (a, b, c)), ("ij,ij->i", (a, a)), ("bij,jk->bik", (torch.randn(2, 4, 5), b))):
    tell(f"contracted {pattern}", opt_einsum.contract(pattern, *given), 1e-5)
    made = opt_einsum.contract_expression(pattern, *[t.shape for t in given])
    tell(f"expression {pattern}", made(*given), 1e-5)
tell("path", list(map(list, opt_einsum.contract_path("ij,jk,kl->il", a, b, c)[0])))
tell("torch's own", torch.einsum("ij,jk,kl->il", a, b, c), 1e-5)

# --- rotations -------------------------------------------------------------------------------

import e3nn  # noqa: E402

e3nn.set_optimization_defaults(jit_script_fx=False)
from e3nn import nn as e3  # noqa: E402
from e3nn import o3  # noqa: E402
from e3nn.io import SphericalTensor  # noqa: E402
from e3nn.math import soft_one_hot_linspace, soft_unit_step  # noqa: E402

torch.manual_seed(1)
points = torch.randn(6, 3)
tell("harmonics", o3.spherical_harmonics([0, 1, 2, 3], points, normalize=True), 1e-4)
irreps = o3.Irreps("4x0e + 3x1o + 2x2e")
tell("irreps", [str(irreps), irreps.dim, irreps.lmax, str(irreps.sort().irreps), str(o3.Irrep("1o") * o3.Irrep("2e"))[:10]])
turn = o3.rand_matrix()
tell("D", irreps.D_from_matrix(turn), 1e-4)
tell("wigner", o3.wigner_3j(1, 2, 1), 1e-4)
tell("angles", [o3.matrix_to_angles(turn), o3.angles_to_matrix(*o3.matrix_to_angles(turn))], 1e-4)
rows = torch.randn(5, irreps.dim, requires_grad=True)
for name, layer in {
    "linear": lambda: o3.Linear(irreps, "3x0e + 2x1o"), "product": lambda: o3.FullyConnectedTensorProduct(irreps, "0e + 1o", "2x0e + 2x1o"), "norm": lambda: o3.Norm(irreps), "batch": lambda: e3.BatchNorm(irreps),
}.items():
    torch.manual_seed(2)
    made = layer()
    given = (rows, torch.randn(5, 4)) if name == "product" else (rows,)
    found = made(*given)
    rows.grad = None
    found.square().sum().backward()
    tell(f"layer {name}", [found, rows.grad, [p.grad.abs().sum() for p in made.parameters() if p.grad is not None]], 1e-3)
torch.manual_seed(2)
made = o3.FullyConnectedTensorProduct(irreps, "0e + 1o", "2x0e + 2x1o")
second = torch.randn(5, 4)
D, E, F = (o3.Irreps(i).D_from_matrix(turn) for i in (irreps, "0e + 1o", "2x0e + 2x1o"))
tell("it holds", bool(torch.allclose(made(rows, second) @ F.T, made(rows @ D.T, second @ E.T), atol=1e-4)))
gate = e3.Gate("4x0e", [torch.tanh], "3x0e", [torch.sigmoid], "3x1o")
tell("gate", gate(torch.randn(5, gate.irreps_in.dim, generator=torch.Generator().manual_seed(3))), 1e-3)
tell("steps", [soft_one_hot_linspace(torch.linspace(0, 2, 5), 0.0, 2.0, 4, basis="gaussian", cutoff=True), soft_unit_step(torch.linspace(-1, 1, 5))], 1e-4)
tell("network", e3.FullyConnectedNet([4, 8, 2], torch.relu)(torch.randn(3, 4, generator=torch.Generator().manual_seed(4))).shape)
tell("signal", SphericalTensor(3, 1, -1).signal_xyz(torch.arange(16.0) / 9, torch.tensor([0.0, 0.6, 0.8])), 1e-4)
