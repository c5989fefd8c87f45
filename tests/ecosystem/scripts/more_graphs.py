"""torch_geometric: layers that ask for edges' numbers and kinds, pooling, models of several kinds of
nodes made by torch.fx, adjacencies in CSR, transforms."""

import random

import numpy as np
import torch
from told import tell
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric import transforms as T
from torch_geometric import utils
from torch_geometric.data import Data

N, E = 12, 40
rng = np.random.default_rng(0)
torch.manual_seed(0)
ends, x = torch.tensor(rng.integers(0, N, (2, E))), torch.randn(N, 8)
numbers, weights, kinds = torch.randn(E, 4), torch.rand(E), torch.arange(E) % 3
places, batch = torch.randn(N, 3), torch.tensor([0] * 5 + [1] * 7)


def mlp(*sizes):
    layers = [part for pair in zip(sizes, sizes[1:], strict=False) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


LAYERS = {
    "AGNN": (lambda: gnn.AGNNConv(), (ends,)), "AntiSymmetric": (lambda: gnn.AntiSymmetricConv(8), (ends,)),
    "CG": (lambda: gnn.CGConv(8, 4), (ends, numbers)), "DirGNN": (lambda: gnn.DirGNNConv(gnn.SAGEConv(8, 5)), (ends,)),
    "EG": (lambda: gnn.EGConv(8, 8, aggregators=["sum", "mean", "max", "std", "var", "symnorm"]), (ends,)),
    "FiLM": (lambda: gnn.FiLMConv(8, 5, num_relations=3), (ends, kinds)), "GATv2": (lambda: gnn.GATv2Conv(8, 5, 2, edge_dim=4), (ends, numbers)),
    "GEN": (lambda: gnn.GENConv(8, 5, aggr="softmax", learn_t=True, edge_dim=4), (ends, numbers)), "GMM": (lambda: gnn.GMMConv(8, 5, 4, 3), (ends, numbers)),
    "GPS": (lambda: gnn.GPSConv(8, gnn.GINConv(mlp(8, 8, 8)), heads=2), (ends, batch)), "General": (lambda: gnn.GeneralConv(8, 5, 4, attention=True, heads=2), (ends, numbers)),
    "Hypergraph": (lambda: gnn.HypergraphConv(8, 5), (torch.stack([ends[0], ends[1] % 5]),)), "MixHop": (lambda: gnn.MixHopConv(8, 5, [0, 1, 2]), (ends,)),
    "PDN": (lambda: gnn.PDNConv(8, 5, 4, 6), (ends, numbers)), "PointTransformer": (lambda: gnn.PointTransformerConv(8, 5), (places, ends)),
    "RGAT": (lambda: gnn.RGATConv(8, 5, 3, heads=2), (ends, kinds)), "RGCN": (lambda: gnn.RGCNConv(8, 4, 3, num_blocks=2), (ends, kinds)),
    "Signed": (lambda: gnn.SignedConv(8, 5, True), (ends[:, :20], ends[:, 20:])), "Simple": (lambda: gnn.SimpleConv("median", combine_root="cat"), (ends,)),
    "Transformer": (lambda: gnn.TransformerConv(8, 5, 2, edge_dim=4, beta=True), (ends, numbers)),
    "HEAT": (lambda: gnn.HEATConv(8, 5, 3, 4, 4, 4, 6, 2), (ends, torch.arange(N) % 3, kinds, numbers)),
    "HeteroLinear": (lambda: gnn.HeteroLinear(8, 5, 3), (torch.arange(N) % 3,)), "U-Net": (lambda: gnn.GraphUNet(8, 8, 5, 2), (ends,)),
    "PNA": (lambda: gnn.PNAConv(
        8, 8, ["mean", "min", "max", "std", "sum"], ["identity", "amplification", "attenuation"], torch.tensor([0, 1, 2, 3, 4, 3, 1]), edge_dim=4, towers=2), (ends, numbers)),
}
for name, (make, given) in LAYERS.items():
    torch.manual_seed(1)
    layer, leaf = make(), x.clone().requires_grad_()
    found = layer(leaf, *given)
    found.square().sum().backward()
    tell(name, found, 1e-4)
    tell(f"{name}: gradients", [leaf.grad, [p.grad.norm() for p in layer.parameters() if p.grad is not None]], 1e-3)

# --- pooling and sums --------------------------------------------------------------------------

torch.manual_seed(2)
tell("ASA", gnn.ASAPooling(8)(x, ends, batch=batch)[0], 1e-4)
tell("edges pooled", gnn.EdgePooling(8)(x, ends, batch)[0], 1e-4)
tell("DMoN", gnn.DMoNPooling(4, 3)(torch.randn(2, 6, 4), torch.rand(2, 6, 6))[1:4], 1e-4)
for how in ("sum", "mean", "min", "max"):
    tell(f"segments {how}", utils.segment(x, torch.tensor([0, 4, 4, 12]), how), 1e-5)
for kind in ("QuantileAggregation", "SoftmaxAggregation", "SortAggregation", "GRUAggregation", "DeepSetsAggregation", "VarAggregation"):
    torch.manual_seed(2)
    options = {"QuantileAggregation": ([0.2, 0.7],), "SoftmaxAggregation": (True,), "SortAggregation": (3,), "GRUAggregation": (8, 5),
               "DeepSetsAggregation": (nn.Linear(8, 6), nn.Linear(6, 5))}.get(kind, ())
    tell(kind, getattr(gnn.aggr, kind)(*options)(x, batch), 1e-4)

# --- several kinds of nodes --------------------------------------------------------------------

TYPES = (["a", "b"], [("a", "to", "b"), ("b", "of", "a")])
nodes = {"a": torch.randn(5, 8), "b": torch.randn(4, 6)}
edges = {("a", "to", "b"): torch.tensor([[0, 1, 4], [0, 3, 3]]), ("b", "of", "a"): torch.tensor([[0, 1, 3], [0, 3, 4]])}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.skip = gnn.SAGEConv((-1, -1), 8), gnn.GATConv((-1, -1), 4, add_self_loops=False), nn.LazyLinear(4)

    def forward(self, x, edge_index):
        y = self.first(x, edge_index).relu()
        return self.second(y, edge_index) + self.skip(y)


torch.manual_seed(3)
hetero = gnn.to_hetero(Net(), TYPES, aggr="mean")
with torch.no_grad():
    hetero(nodes, edges)
torch.manual_seed(4)
for parameter in hetero.parameters():
    nn.init.normal_(parameter, std=0.3)
optimizer, losses = torch.optim.Adam(hetero.parameters(), 0.01), []
for _ in range(4):
    loss = sum(y.square().mean() for y in hetero(nodes, edges).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("to_hetero: losses", losses, 1e-4)
tell("to_hetero: names", sorted(hetero.state_dict()))
torch.manual_seed(5)
tell("HGT", gnn.HGTConv({"a": 8, "b": 6}, 8, TYPES, 2)(nodes, edges), 1e-4)
tell("HAN", gnn.HANConv({"a": 8, "b": 6}, 8, TYPES, 2)(nodes, edges), 1e-4)

# --- adjacencies and transforms ----------------------------------------------------------------

csr = utils.to_torch_csr_tensor(ends, weights)
tell("csr", [csr.crow_indices(), csr.col_indices(), csr.values()], 1e-6)
tell("csc", utils.to_torch_csc_tensor(ends, weights).values(), 1e-6)
tell("spmm", [utils.spmm(csr, x), utils.spmm(csr, x, "mean")], 1e-5)
data = Data(x=x, edge_index=ends, edge_attr=numbers, pos=places, y=torch.arange(N) % 3)
for transform in (
    T.ToUndirected(), T.LocalDegreeProfile(), T.ToDense(15), T.LineGraph(), T.RootedEgoNets(1), T.RandomNodeSplit(num_val=2, num_test=2),
    T.VirtualNode(), T.AddRandomWalkPE(3), T.Cartesian(), T.RandomRotate(30),
    T.ToSparseTensor(layout=torch.sparse_csr),
):
    torch.manual_seed(6)
    random.seed(6)
    found = {k: v.to_dense() for k, v in transform(data.clone()).to_dict().items() if isinstance(v, torch.Tensor)}
    tell(type(transform).__name__, {k: [list(v.shape), v.double().sum()] for k, v in found.items()}, 1e-4)
