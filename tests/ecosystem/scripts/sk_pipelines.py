"""skorch: nets as scikit-learn's estimators, in pipelines and searches, saved, compiled."""

import os
import pickle
import warnings

import numpy as np
import torch
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import (
    BatchScoring, Checkpoint, EarlyStopping, EpochScoring, GradientNormClipping, LRScheduler,
    ParamMapper, PrintLog, ProgressBar, TensorBoard, TrainEndCheckpoint,
)
from skorch.dataset import Dataset, ValidSplit
from skorch.helper import SliceDataset, predefined_split
from told import tell
from torch import nn

warnings.filterwarnings("ignore")
X, y = make_classification(200, 12, n_informative=6, n_classes=3, random_state=0)
X, y = X.astype(np.float32), y.astype(np.int64)


class Net(nn.Module):
    def __init__(self, width=16, dropout=0.2, outputs=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, outputs))

    def forward(self, X):
        return self.layers(X)


def classifier(**options):
    torch.manual_seed(0)
    return NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, lr=0.1, max_epochs=6, verbose=0, **options)


def history(net, *names):
    return {name: [row.get(name) for row in net.history] for name in ("train_loss", "valid_loss", "valid_acc", *names)}


net = classifier(iterator_train__shuffle=True, optimizer=torch.optim.Adam, optimizer__weight_decay=1e-3)
net.fit(X, y)
tell("losses", history(net), 1e-4)
tell("predicted", [net.predict(X[:9]), net.predict_proba(X[:5]), net.score(X, y)], 1e-4)
net.partial_fit(X, y)
tell("losses, further", history(net), 1e-4)
clone = pickle.loads(pickle.dumps(net))
tell("pickled", clone.predict_proba(X[:3]), 1e-4)

net.save_params(f_params="p.pt", f_optimizer="o.pt", f_history="h.json")
other = classifier(optimizer=torch.optim.Adam).initialize()
other.load_params(f_params="p.pt", f_optimizer="o.pt", f_history="h.json")
tell("loaded", [other.predict_proba(X[:3]), len(other.history)], 1e-4)
net.save_params(f_params="p.safetensors", use_safetensors=True)
other.load_params(f_params="p.safetensors", use_safetensors=True)
tell("safetensors", other.predict_proba(X[:3]), 1e-4)

pipe = Pipeline([("scale", StandardScaler()), ("net", classifier(train_split=None))])
pipe.fit(X, y)
tell("pipeline", pipe.predict_proba(X[:4]), 1e-4)
search = GridSearchCV(classifier(train_split=None), {"lr": [0.02, 0.2], "module__width": [8, 16]}, cv=3, scoring="accuracy", refit=True)
torch.manual_seed(1)
search.fit(X, y)
tell("search", [search.best_params_, search.cv_results_["mean_test_score"]], 1e-3)
torch.manual_seed(2)
tell("cross-validated", cross_validate(classifier(), X, y, cv=3)["test_score"], 1e-3)
tell("cross-predicted", cross_val_predict(classifier(), X, y, cv=3, method="predict_proba")[:3], 1e-3)

folder = "checkpoints"
callbacks = [
    ("stop", EarlyStopping(patience=2)),
    ("best", Checkpoint(dirname=folder, monitor="valid_loss_best")),
    ("end", TrainEndCheckpoint(dirname=folder)),
    ("schedule", LRScheduler(policy=torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)),
    ("clip", GradientNormClipping(0.5)),
    ("f1", EpochScoring("f1_macro", lower_is_better=False)),
    ("batch", BatchScoring("accuracy", name="batch_acc")),
]
net = classifier(callbacks=callbacks)
net.fit(X, y)
tell("callbacks", history(net, "f1_macro", "event_lr", "batch_acc", "valid_loss_best"), 1e-4)
tell("files", sorted(os.listdir(folder)))
net.load_params(checkpoint=callbacks[1][1])
tell("best", net.predict_proba(X[:3]), 1e-4)
frozen = classifier(callbacks=[ParamMapper("layers.0.*", at=1, fn=lambda p: p.requires_grad_(False))])
frozen.fit(X, y)
tell("frozen", history(frozen), 1e-4)

Xr, yr = make_regression(120, 12, random_state=0)
torch.manual_seed(0)
regressor = NeuralNetRegressor(Net, module__outputs=1, max_epochs=4, lr=1e-3, verbose=0, train_split=ValidSplit(4), batch_size=16)
regressor.fit(Xr.astype(np.float32), (yr / 100).astype(np.float32)[:, None])
tell("regressor", [regressor.history[:, "train_loss"], regressor.score(Xr.astype(np.float32), yr[:, None] / 100)], 1e-3)
torch.manual_seed(0)
binary = NeuralNetBinaryClassifier(Net, module__outputs=1, max_epochs=4, lr=0.05, verbose=0, threshold=0.4)
binary.fit(X, (y > 0).astype(np.float32))
tell("binary", [binary.history[:, "train_loss"], binary.predict(X[:8])], 1e-4)
sliced = SliceDataset(Dataset(X, y))
torch.manual_seed(0)
valid = Dataset(X[150:], y[150:])
net = classifier(train_split=predefined_split(valid), iterator_train__num_workers=1)
net.fit(Dataset(X[:150], y[:150]), y=None)
tell("datasets", [history(net), len(sliced)], 1e-4)
weighted = classifier(criterion__weight=torch.tensor([1.0, 2.0, 0.5]))
weighted.fit({"X": X}, y)
tell("weighted, from a dict", history(weighted), 1e-4)
net = classifier(compile=True)
net.fit(X, y)
tell("compiled", history(net), 1e-4)
net.set_params(lr=0.01, module__width=5)
net.fit(X, y)
tell("set anew", [history(net), str(net.module_).count("Linear")], 1e-4)

from torch.utils.tensorboard import SummaryWriter  # noqa: E402

net = classifier(callbacks=[TensorBoard(SummaryWriter("skorch_logs"))])
net.fit(X, y)
tell("logs", any(name.startswith("events") for name in os.listdir("skorch_logs")))
print(PrintLog, ProgressBar)
