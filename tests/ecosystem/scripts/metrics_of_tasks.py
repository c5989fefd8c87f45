"""torchmetrics: metrics of each domain, in two batches and at once, saved, merged, collected."""

import copy
import pickle
import sys
import warnings

import torch
import torchmetrics
from told import own, tell
from torch import nn
from torchmetrics import Metric, MetricCollection
from torchmetrics import aggregation as agg
from torchmetrics import classification as cls
from torchmetrics import clustering as clu
from torchmetrics import image as img
from torchmetrics import regression as reg
from torchmetrics import retrieval as ret
from torchmetrics import segmentation as seg
from torchmetrics import text as txt
from torchmetrics.functional import classification as fcls
from torchmetrics.functional import pairwise
from torchmetrics.functional import regression as freg
from torchmetrics.wrappers import (
    BootStrapper, ClasswiseWrapper, MetricTracker, MinMaxMetric, MultioutputWrapper, Running,
)

warnings.filterwarnings("ignore")
g = torch.Generator().manual_seed(0)
N, C = 40, 4
scores = torch.rand(2, N, generator=g)
logits = torch.randn(2, N, C, generator=g)
many = torch.rand(2, N, C, generator=g)
bits = torch.randint(0, 2, (2, N), generator=g)
classes = torch.randint(0, C, (2, N), generator=g)
labels = torch.randint(0, 2, (2, N, C), generator=g)
a, b = torch.rand(2, N, generator=g) + 0.1, torch.rand(2, N, generator=g) + 0.1
wide = torch.rand(2, N, 3, generator=g)
wide2 = torch.rand(2, N, 3, generator=g)
pictures = torch.rand(2, 2, 3, 48, 48, generator=g)
others = (pictures + 0.1 * torch.rand(2, 2, 3, 48, 48, generator=g)).clamp(0, 1)
queries = torch.arange(N).div(8, rounding_mode="floor").expand(2, N)
masks = torch.randint(0, 2, (2, 3, C, 8, 8), generator=g)
masks2 = torch.randint(0, 2, (2, 3, C, 8, 8), generator=g)
sound = torch.randn(2, 3, 400, generator=g)
sound2 = sound + 0.3 * torch.randn(2, 3, 400, generator=g)
spread = torch.softmax(torch.randn(2, N, C, generator=g), -1)
spread2 = torch.softmax(torch.randn(2, N, C, generator=g), -1)
words = [["the cat sat on the mat", "a dog ran"], ["it was late at night", "hello there world"]]
words2 = [["the cat is on the mat", "the dog ran fast"], ["it was quite late", "hello big world"]]

binary = (scores, bits)
multi = (logits, classes)
label = (many, labels)
CASES = {}
# not LogAUC: its interpolation hangs on how argsort() of PyTorch happens to order equal values
for name in ("Accuracy", "Precision", "Recall", "F1Score", "Specificity", "StatScores", "AUROC", "AveragePrecision", "CohenKappa", "ConfusionMatrix", "JaccardIndex", "MatthewsCorrCoef", "CalibrationError", "HammingDistance", "PrecisionRecallCurve", "ROC", "HingeLoss", "NegativePredictiveValue", "EER"):
    for kind, given, options in (("Binary", binary, {}), ("Multiclass", multi, {"num_classes": C}), ("Multilabel", label, {"num_labels": C})):
        found = getattr(cls, kind + name, None)
        if found is not None:
            CASES[kind + name] = (found, given, options)
CASES |= {
    "MulticlassExactMatch": (cls.MulticlassExactMatch, (classes[:, :, None].expand(2, N, 3), classes[:, :, None].expand(2, N, 3).flip(1)), {"num_classes": C}),
    "MultilabelRankingLoss": (cls.MultilabelRankingLoss, label, {"num_labels": C}),
    "MultilabelCoverageError": (cls.MultilabelCoverageError, label, {"num_labels": C}),
    "BinaryFBeta": (cls.BinaryFBetaScore, binary, {"beta": 0.5}),
    "MulticlassFBeta": (cls.MulticlassFBetaScore, multi, {"beta": 2.0, "num_classes": C, "average": None}),
    "BinaryRecallAtPrecision": (cls.BinaryRecallAtFixedPrecision, binary, {"min_precision": 0.5}),
    "BinaryThresholds": (cls.BinaryAUROC, binary, {"thresholds": 11}),
    "BinaryFairness": (cls.BinaryFairness, (scores, bits, bits.flip(1)), {"num_groups": 2}),
    "Dice": (seg.DiceScore, (masks, masks2), {"num_classes": C}),
    "MeanIoU": (seg.MeanIoU, (masks, masks2), {"num_classes": C}),
    "GeneralizedDice": (seg.GeneralizedDiceScore, (masks, masks2), {"num_classes": C}),
}
for name in ("MeanSquaredError", "MeanAbsoluteError", "MeanSquaredLogError", "MeanAbsolutePercentageError", "SymmetricMeanAbsolutePercentageError", "WeightedMeanAbsolutePercentageError", "R2Score", "ExplainedVariance", "PearsonCorrCoef", "SpearmanCorrCoef", "ConcordanceCorrCoef", "KendallRankCorrCoef", "LogCoshError", "RelativeSquaredError", "MinkowskiDistance", "TweedieDevianceScore", "CriticalSuccessIndex", "NormalizedRootMeanSquaredError"):
    options = {"p": 3} if name == "MinkowskiDistance" else {"threshold": 0.5} if name == "CriticalSuccessIndex" else {}
    CASES[name] = (getattr(reg, name), (a, b), options)
CASES |= {
    "CosineSimilarity": (reg.CosineSimilarity, (wide, wide2), {"reduction": "mean"}),
    "KLDivergence": (reg.KLDivergence, (spread, spread2), {}),
    "R2 of three": (reg.R2Score, (wide, wide2), {"multioutput": "raw_values"}),
}
for name in ("RetrievalMAP", "RetrievalMRR", "RetrievalNormalizedDCG", "RetrievalPrecision", "RetrievalRecall", "RetrievalHitRate", "RetrievalFallOut", "RetrievalRPrecision", "RetrievalAUROC"):
    CASES[name] = (getattr(ret, name), (scores, bits, queries), {})
for name in ("PeakSignalNoiseRatio", "StructuralSimilarityIndexMeasure", "UniversalImageQualityIndex", "ErrorRelativeGlobalDimensionlessSynthesis", "SpectralAngleMapper", "SpectralDistortionIndex", "RootMeanSquaredErrorUsingSlidingWindow", "RelativeAverageSpectralError", "SpatialCorrelationCoefficient", "VisualInformationFidelity"):
    CASES[name] = (getattr(img, name), (pictures, others), {"data_range": 1.0} if name in ("PeakSignalNoiseRatio", "StructuralSimilarityIndexMeasure") else {})
CASES["TotalVariation"] = (img.TotalVariation, (pictures,), {})
for name in ("SignalNoiseRatio", "ScaleInvariantSignalNoiseRatio", "ScaleInvariantSignalDistortionRatio", "SignalDistortionRatio"):
    CASES[name] = (getattr(torchmetrics.audio, name), (sound2, sound), {})
for name in ("RandScore", "AdjustedRandScore", "MutualInfoScore", "AdjustedMutualInfoScore", "NormalizedMutualInfoScore", "HomogeneityScore", "CompletenessScore", "VMeasureScore", "FowlkesMallowsIndex"):
    CASES[name] = (getattr(clu, name), (classes, classes.roll(3, 1)), {})
for name in ("CalinskiHarabaszScore", "DaviesBouldinScore", "DunnIndex"):
    CASES[name] = (getattr(clu, name), (wide, classes), {})
for name in ("MeanMetric", "SumMetric", "MaxMetric", "MinMetric", "CatMetric", "RunningMean", "RunningSum"):
    CASES[name] = (getattr(agg, name), (a,), {})
for name in ("CramersV", "PearsonsContingencyCoefficient", "TheilsU", "TschuprowsT"):
    CASES[name] = (getattr(torchmetrics.nominal, name), (classes, classes.roll(1, 1)), {"num_classes": C})
for name in ("CharErrorRate", "WordErrorRate", "MatchErrorRate", "WordInfoLost", "WordInfoPreserved", "EditDistance", "TranslationEditRate", "CHRFScore"):
    second = [[[x] for x in batch] for batch in words2] if name in ("TranslationEditRate", "CHRFScore") else words2
    CASES[name] = (getattr(txt, name), (words, second), {})
CASES["BLEUScore"] = (txt.BLEUScore, (words, [[[x] for x in batch] for batch in words2]), {"n_gram": 2})
CASES["Perplexity"] = (txt.Perplexity, (logits[:, None], classes[:, None]), {})


def told_of(kind, given, options):
    torch.manual_seed(0)
    metric = kind(**options)
    forward = metric(*(x[0] for x in given))  # the batch's own value
    metric.update(*(x[1] for x in given))
    both = metric.compute()
    again = pickle.loads(pickle.dumps(copy.deepcopy(metric)))
    metric.persistent(True)
    saved = sorted(metric.state_dict())
    metric.reset()
    metric.update(*(x[1] for x in given))
    return {"forward": forward, "both": both, "pickled": again.compute(), "second": metric.compute(), "saved": saved}


passed = 0
for name, (kind, given, options) in CASES.items():
    try:
        value = told_of(kind, given, options)
    except Exception as error:
        tell(f"{name} stops", f"{type(error).__name__}: {error}"[:200])
    else:
        passed += 1
        tell(name, value, 2e-4)
own("metrics", f"{passed} of {len(CASES)}")

# --- collections, wrappers, metrics of one's own -------------------------------------------------

collection = MetricCollection([cls.MulticlassAccuracy(C), cls.MulticlassPrecision(C), cls.MulticlassRecall(C), cls.MulticlassConfusionMatrix(C)], prefix="val_")
for x, y in zip(*multi):
    collection.update(x, y)
tell("collection", collection.compute(), 1e-5)
tell("groups", sorted(sorted(group) for group in collection.compute_groups.values()))
clone = collection.clone(postfix="_b")
tell("clone", sorted(clone.compute()))
tell("collection's forward", collection(logits[0], classes[0]), 1e-5)
for name, made in (
    ("classwise", lambda: ClasswiseWrapper(cls.MulticlassAccuracy(C, average=None), labels=list("abcd"))),
    ("minmax", lambda: MinMaxMetric(cls.MulticlassAccuracy(C))),
    ("running", lambda: Running(cls.MulticlassAccuracy(C), window=1)),
    ("bootstrap", lambda: BootStrapper(cls.MulticlassAccuracy(C), num_bootstraps=4)),
):
    torch.manual_seed(3)
    wrapper = made()
    for x, y in zip(*multi):
        wrapper.update(x, y)
    tell(name, wrapper.compute(), 1e-5)
outputs = MultioutputWrapper(reg.MeanSquaredError(), 3)
outputs.update(wide[0], wide2[0])
tell("multioutput", outputs.compute(), 1e-5)
tracker = MetricTracker(cls.MulticlassAccuracy(C))
for x, y in zip(*multi):
    tracker.increment()
    tracker.update(x, y)
tell("tracker", [tracker.compute_all(), tracker.best_metric(return_step=True)], 1e-5)
first, second = reg.MeanSquaredError(), reg.MeanAbsoluteError()
sums = first + 2 * second
sums.update(a[0], b[0])
tell("composed", sums.compute(), 1e-5)


class Mine(Metric):
    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum", persistent=True)
        self.add_state("seen", [], dist_reduce_fx="cat")

    def update(self, x):
        self.total += x.sum()
        self.seen.append(x)

    def compute(self):
        return self.total / torchmetrics.utilities.dim_zero_cat(self.seen).numel()


mine = Mine()
mine(a[0])
mine.update(a[1])
tell("mine", [mine.compute(), sorted(mine.state_dict()), mine.update_count, mine.metric_state.keys()], 1e-5)
loaded = Mine()
loaded.load_state_dict(mine.state_dict())
tell("loaded", loaded.total, 1e-5)
merged = Mine()
merged.update(a[0])
merged.merge_state(mine)
tell("merged", merged.compute(), 1e-5)
tell("types", [str(mine.double().total.dtype), str(mine.set_dtype(torch.float64).total.dtype), str(mine.device)])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.accuracy = nn.Linear(4, C), cls.MulticlassAccuracy(C)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for x, y in zip(*multi):
    out = model.layer(x)
    nn.functional.cross_entropy(out, y).backward()
    optimizer.step()
    model.accuracy(out, y)
tell("in a model", [model.accuracy.compute(), sorted(model.state_dict())], 1e-5)
given = pictures[0].clone().requires_grad_()
loss = torchmetrics.functional.structural_similarity_index_measure(given, others[0], data_range=1.0)
(gradient,) = torch.autograd.grad(loss, given)
tell("a metric as a loss", [loss, gradient.abs().mean(), gradient[0, 0, 3]], 1e-3)
for name in ("cosine_similarity", "euclidean_distance", "linear_similarity", "manhattan_distance", "minkowski_distance"):
    tell(f"pairwise {name}", getattr(pairwise, f"pairwise_{name}")(wide[0][:5], wide2[0][:6], **({"exponent": 3} if "minkowski" in name else {})), 1e-4)
tell("functional", [fcls.multiclass_f1_score(*(v[0] for v in multi), num_classes=C, average="weighted"), freg.r2_score(a[0], b[0])], 1e-5)
for wrong in (lambda: cls.MulticlassAccuracy(C)(logits[0], classes[0] + C), lambda: cls.BinaryAUROC()(scores[0], bits[1][:3]), lambda: reg.MeanSquaredError()(a[0], wide[0])):
    try:
        wrong()
    except (RuntimeError, ValueError, IndexError) as error:
        tell("refused", type(error).__name__)
compiled = torch.compile(lambda x, y: fcls.multiclass_accuracy(x, y, num_classes=C, validate_args=False))
tell("compiled", [compiled(x, y) for x, y in zip(*multi)], 1e-5)
sys.stdout.flush()
