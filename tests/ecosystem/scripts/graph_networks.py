"""torch_geometric, its Python alone: layers, pooling, loaders, tools, a GCN trained, compiled."""

import numpy as np
import torch
import torch.nn.functional as F
from told import own, tell
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric import utils
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

torch.manual_seed(0)
rng = np.random.default_rng(0)


def graph(nodes, edges, width=8):
    ends = torch.tensor(rng.integers(0, nodes, (2, edges)))
    return Data(x=torch.randn(nodes, width), edge_index=ends, y=torch.tensor([nodes % 2]), edge_attr=torch.randn(edges, 4))


one = graph(12, 40)
ends, x = one.edge_index, one.x
tell("data", [one.num_nodes, one.num_edges, one.num_features, one.has_isolated_nodes(), one.has_self_loops(), one.is_undirected()])

# --- tools -----------------------------------------------------------------------------------

tell("degree", utils.degree(ends[0], 12))
tell("undirected", utils.to_undirected(ends))
tell("loops", [utils.add_self_loops(ends, num_nodes=12)[0].shape, utils.remove_self_loops(ends)[0].shape])
tell("coalesced", utils.coalesce(ends, one.edge_attr)[1], 1e-5)
tell("softmax", utils.softmax(one.edge_attr, ends[1], num_nodes=12), 1e-5)
for how in ("sum", "mean", "min", "max", "mul"):
    tell(f"scatter {how}", utils.scatter(one.edge_attr, ends[1], dim_size=12, reduce=how), 1e-5)
tell("neighbours", [part.sum() for part in utils.k_hop_subgraph(3, 2, ends, num_nodes=12)])
tell("subgraph", utils.subgraph([0, 1, 2, 3, 4, 5], ends, num_nodes=12)[0])
tell("dense", [utils.to_dense_adj(ends, max_num_nodes=12).sum(), utils.dense_to_sparse(torch.eye(3))[0]])
tell("laplacian", utils.get_laplacian(ends, normalization="sym", num_nodes=12)[1], 1e-5)
tell("homophily", utils.homophily(ends, torch.arange(12) % 2))
tell("one hot", utils.one_hot(torch.tensor([0, 2])))
torch.manual_seed(3)
tell("dropped", [utils.dropout_edge(ends, 0.3)[0].shape, utils.mask_feature(x, 0.3)[0].sum()], 1e-5)

# --- layers ----------------------------------------------------------------------------------

LAYERS = {
    "GCNConv": (8, 5), "SAGEConv": (8, 5), "GATConv": (8, 5, 2), "GATv2Conv": (8, 5, 2), "TransformerConv": (8, 5, 2), "ChebConv": (8, 5, 3),
    "GraphConv": (8, 5), "TAGConv": (8, 5), "SGConv": (8, 5, 2), "ARMAConv": (8, 5), "TransformerConv ": (8, 5), "LEConv": (8, 5),
    "GatedGraphConv": (8, 2), "ResGatedGraphConv": (8, 5), "ClusterGCNConv": (8, 5), "MFConv": (8, 5), "FeaStConv": (8, 5), "SuperGATConv": (8, 5),
}
for name, sizes in LAYERS.items():
    torch.manual_seed(1)
    layer = getattr(gnn, name.strip())(*sizes)
    found = layer(x, ends)
    found.square().sum().backward()
    tell(name, [found, [p.grad.abs().sum() for p in layer.parameters() if p.grad is not None]], 1e-4)
torch.manual_seed(1)
tell("GINConv", gnn.GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5)))(x, ends), 1e-4)
tell("GINEConv", gnn.GINEConv(nn.Linear(8, 5), edge_dim=4)(x, ends, one.edge_attr), 1e-4)
tell("NNConv", gnn.NNConv(8, 5, nn.Linear(4, 40))(x, ends, one.edge_attr), 1e-4)
tell("EdgeConv", gnn.EdgeConv(nn.Linear(16, 5), aggr="max")(x, ends), 1e-4)
tell("RGCNConv", gnn.RGCNConv(8, 5, 3, num_bases=2)(x, ends, torch.arange(40) % 3), 1e-4)
tell("PNAConv", gnn.PNAConv(8, 5, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([0, 1, 2, 3, 4, 3, 1]))(x, ends), 1e-4)
tell("APPNP", gnn.APPNP(3, 0.1)(x, ends), 1e-4)
weights = torch.rand(40)
tell("weighted GCN", gnn.GCNConv(8, 5)(x, ends, weights), 1e-4)
for kind in (gnn.GCN, gnn.GAT, gnn.GraphSAGE, gnn.GIN):
    torch.manual_seed(2)
    tell(f"model {kind.__name__}", kind(8, 16, 3, 4, jk="cat").eval()(x, ends), 1e-4)
for norm in (gnn.BatchNorm(8), gnn.GraphNorm(8), gnn.PairNorm(), gnn.LayerNorm(8), gnn.InstanceNorm(8)):
    tell(type(norm).__name__ + " layer", norm(x), 1e-4)

# --- batches ---------------------------------------------------------------------------------

graphs = [graph(5 + k % 6, 14) for k in range(24)]
batch = Batch.from_data_list(graphs[:5])
tell("batch", [batch.num_graphs, batch.batch, batch.ptr, batch[2].edge_index])
for pool in (gnn.global_add_pool, gnn.global_mean_pool, gnn.global_max_pool):
    tell(pool.__name__, pool(batch.x, batch.batch), 1e-5)
torch.manual_seed(4)
pooled = gnn.TopKPooling(8, 0.5)(batch.x, batch.edge_index, batch=batch.batch)
tell("top k", [pooled[0], pooled[1], pooled[3]], 1e-4)
tell("sag", gnn.SAGPooling(8, 0.5)(batch.x, batch.edge_index, batch=batch.batch)[0], 1e-4)
dense, mask = utils.to_dense_batch(batch.x, batch.batch)
tell("dense batch", [dense.sum(), mask], 1e-5)
tell("set2set", gnn.Set2Set(8, 2)(batch.x, batch.batch), 1e-4)
tell("attention", gnn.aggr.AttentionalAggregation(nn.Linear(8, 1))(batch.x, batch.batch), 1e-4)
tell("median", gnn.aggr.MedianAggregation()(batch.x, batch.batch), 1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = gnn.GCNConv(8, 16), gnn.GATConv(16, 8, heads=2), nn.Linear(16, 2)

    def forward(self, x, edge_index, batch, size):
        x = F.relu(self.first(x, edge_index))
        x = F.relu(self.second(x, edge_index))
        return self.head(gnn.global_mean_pool(x, batch, size))


for compiled in (False, True):
    torch.manual_seed(5)
    model = Net()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(3):
        for part in DataLoader(graphs, batch_size=8, shuffle=True):
            loss = F.cross_entropy(run(part.x, part.edge_index, part.batch, part.num_graphs), part.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    tell(f"losses, {'compiled' if compiled else 'eager'}", losses, 1e-4)
    if compiled and hasattr(run, "_compiled_function"):
        own("versions", [run._compiled_function.compile_count, run._compiled_function.segments is None])

# --- several kinds of nodes, sparse adjacency, messages of one's own -------------------------

kinds = HeteroData()
kinds["user"].x, kinds["film"].x = torch.randn(6, 8), torch.randn(4, 5)
kinds["user", "likes", "film"].edge_index = torch.tensor([[0, 1, 2, 5], [0, 1, 3, 2]])
kinds["film", "of", "user"].edge_index = torch.tensor([[0, 1, 3, 2], [0, 1, 2, 5]])
torch.manual_seed(6)
both = gnn.HeteroConv({kind: gnn.SAGEConv((-1, -1), 4) for kind in kinds.edge_types})
tell("kinds of nodes", [str(kinds.metadata()), {k: v for k, v in both(kinds.x_dict, kinds.edge_index_dict).items()}], 1e-4)


class Own(gnn.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add", flow="source_to_target")

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, norm=torch.ones(edge_index.shape[1]))

    def message(self, x_j, x_i, norm):
        return norm.view(-1, 1) * (x_j - x_i)


tell("messages", Own()(x, ends), 1e-5)
tell("link loss", (gnn.GAE(gnn.GCN(8, 8, 2, 4)).encode(x, ends)).shape)
embedding = gnn.Node2Vec(utils.to_undirected(ends), 4, 4, 3) if hasattr(torch.ops, "pyg") and hasattr(torch.ops.pyg, "random_walk") else None
tell("walks", embedding is None)
sparse = torch.sparse_coo_tensor(ends.flip(0), torch.ones(40), (12, 12)).coalesce().to_sparse_csr()
torch.manual_seed(1)
tell("sparse adjacency", gnn.SAGEConv(8, 5)(x, sparse), 1e-4)
torch.save({"graphs": graphs[:3], "model": model.state_dict()}, "graphs.pt")
again = torch.load("graphs.pt", weights_only=False)
tell("saved", [again["graphs"][1].x, sorted(again["model"])], 1e-6)
