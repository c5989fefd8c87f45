"""pytorch-metric-learning: losses, miners, distances, reducers, samplers, a model trained."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers, samplers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import InferenceModel
from told import tell
from torch import nn

torch.manual_seed(0)
vectors = torch.randn(24, 8)
labels = torch.arange(24) % 4
LOSSES = {
    "AngularLoss": (), "CircleLoss": (), "ContrastiveLoss": (), "FastAPLoss": (), "GeneralizedLiftedStructureLoss": (), "IntraPairVarianceLoss": (),
    "LiftedStructureLoss": (), "MarginLoss": (), "MultiSimilarityLoss": (), "NCALoss": (), "NPairsLoss": (), "NTXentLoss": (), "SignalToNoiseRatioContrastiveLoss": (),
    "SupConLoss": (), "TripletMarginLoss": (), "TupletMarginLoss": (), "ArcFaceLoss": (4, 8), "CosFaceLoss": (4, 8), "NormalizedSoftmaxLoss": (4, 8),
    "ProxyAnchorLoss": (4, 8), "ProxyNCALoss": (4, 8), "SoftTripleLoss": (4, 8), "SphereFaceLoss": (4, 8), "SubCenterArcFaceLoss": (4, 8), "LargeMarginSoftmaxLoss": (4, 8),
    "InstanceLoss": (), "RankedListLoss": (1.0, 0.5), "HistogramLoss": (20,), "ThresholdConsistentMarginLoss": (), "ManifoldLoss": (8,), "DynamicSoftMarginLoss": (),
}
for name, given in LOSSES.items():
    if not hasattr(losses, name):
        tell(f"loss of {name}", "not in this version")
        continue
    torch.manual_seed(1)
    points = vectors.clone().requires_grad_()
    try:
        loss = getattr(losses, name)(*given)(points, labels)
        loss.backward()
        tell(f"loss of {name}", [loss.item(), points.grad.abs().sum()], 1e-3)
    except Exception as error:
        tell(f"loss of {name}", type(error).__name__)
for name in ("BatchHardMiner", "BatchEasyHardMiner", "DistanceWeightedMiner", "MultiSimilarityMiner", "PairMarginMiner", "TripletMarginMiner", "UniformHistogramMiner", "HDCMiner", "AngularMiner"):
    torch.manual_seed(2)
    found = getattr(miners, name)()(vectors, labels)
    tell(name, [len(found), [len(part) for part in found], [part.sum() for part in found]])
for distance in (distances.CosineSimilarity(), distances.DotProductSimilarity(), distances.LpDistance(p=1), distances.SNRDistance()):
    tell(type(distance).__name__, distance(vectors[:5], vectors[5:9]), 1e-4)
for reducer in (reducers.MeanReducer(), reducers.AvgNonZeroReducer(), reducers.ThresholdReducer(low=0.1), reducers.ClassWeightedReducer(torch.rand(4))):
    tell(f"loss by {type(reducer).__name__}", losses.TripletMarginLoss(margin=0.3, reducer=reducer)(vectors, labels), 1e-4)
tell("regularised loss", losses.ContrastiveLoss(embedding_regularizer=regularizers.LpRegularizer())(vectors, labels), 1e-4)
memory = losses.CrossBatchMemory(losses.NTXentLoss(), 8, memory_size=40)
tell("losses by memory", [memory(vectors + k, labels).item() for k in range(3)], 1e-4)
tell("self-supervised loss", losses.SelfSupervisedLoss(losses.NTXentLoss())(vectors, vectors.flip(1)), 1e-4)
torch.manual_seed(3)
tell("sampled", sorted(samplers.MPerClassSampler(labels, 3, batch_size=12, length_before_new_iter=24).labels))


def trained(compiled):
    torch.manual_seed(4)
    x = torch.randn(96, 12)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6))
    run = torch.compile(model) if compiled else model
    miner, criterion = miners.MultiSimilarityMiner(), losses.ArcFaceLoss(4, 6)
    optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], 0.01)
    told = []
    for step in range(12):
        part = slice(step % 3 * 32, step % 3 * 32 + 32)
        found = run(x[part])
        loss = criterion(found, y[part], miner(found, y[part]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told.append(loss.item())
    return told, model.eval(), x, y


for compiled in (False, True):
    told, model, x, y = trained(compiled)
    tell(f"losses, {'compiled' if compiled else 'eager'}", told, 1e-3)
with torch.no_grad():
    points = model(x)


def nearest(query, k, reference, same):
    gap = torch.cdist(query, reference)
    if same:
        gap.fill_diagonal_(torch.inf)
    values, indices = gap.topk(k, largest=False)
    return values, indices


calculator = AccuracyCalculator(include=("precision_at_1", "r_precision", "mean_average_precision_at_r"), knn_func=nearest, device=torch.device("cpu"), k=20)
tell("accuracies", calculator.get_accuracy(points, y), 1e-3)
tell("match", InferenceModel is not None)
