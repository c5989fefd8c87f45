"""fastai: tensor kinds, Learner with callbacks, a data block of pictures with augmentation."""

import pickle
import sys
import types
import warnings

from told import on_graphc, tell

if not on_graphc():  # torchvision's wheel is built for another PyTorch than the CPU's: no operators
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("without_operators")
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from fastai.basics import *  # noqa: E402, F403
from fastai.callback.all import *  # noqa: E402, F403
from fastai.test_utils import synth_dbunch  # noqa: E402
from fastai.torch_core import TensorBase, TensorCategory, TensorImage, TensorMask, default_device, set_seed, to_detach  # noqa: E402
from fastai.vision.all import *  # noqa: E402, F403
from PIL import Image as Pictures  # noqa: E402
from copy import deepcopy  # noqa: E402

default_device(False)


def plain(value):
    if isinstance(value, torch.Tensor):
        inner = value.as_subclass(torch.Tensor).double()
        return [type(value).__name__, list(inner.shape), inner.sum().item()]
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) else str(value)


a = TensorImage(torch.arange(12.0).reshape(3, 2, 2))
m, c = TensorMask(torch.ones(2, 2, dtype=torch.long)), TensorCategory(1)
a.img_size = (2, 2)
for name, call in {
    "add": lambda: a + 1, "radd": lambda: 1 + a, "mask": lambda: a[m.bool().expand(3, 2, 2)], "both": lambda: a + m, "eq": lambda: a == a, "cat": lambda: torch.cat([a, a]), "stack": lambda: torch.stack([a, a]),
    "clone": lambda: a.clone(), "deepcopy": lambda: deepcopy(a), "its field": lambda: deepcopy(a).img_size, "pickle": lambda: pickle.loads(pickle.dumps(a)), "max": lambda: list(a.max(0)), "float": lambda: m.float(),
    "new": lambda: [a.new_tensor([1, 2]), a.new_ones(2)], "subclass": lambda: a.as_subclass(TensorBase), "detached": lambda: to_detach(a), "layer": lambda: torch.nn.Conv2d(3, 1, 1)(a[None]) * 0, "row": lambda: list(a)[0],
    "rated": lambda: TensorImage(torch.ones(2)).requires_grad_(), "in place": lambda: a.clone().add_(1), "number": lambda: int(c),
}.items():
    tell(f"kind, {name}", plain(call()), 1e-6)

# --- a line, learned -------------------------------------------------------------------------


def learner(**options):
    set_seed(0, True)
    return Learner(synth_dbunch(a=2, b=3, bs=16, n_train=6, n_valid=2), nn.Linear(1, 1), loss_func=MSELossFlat(), path=".", **options)  # noqa: F405


for name, fit in {
    "fit": lambda x: x.fit(2, 0.05), "one cycle": lambda x: x.fit_one_cycle(3, 0.05), "flat": lambda x: x.fit_flat_cos(3, 0.05), "warm restarts": lambda x: x.fit_sgdr(2, 1, 0.05), "fine": lambda x: x.fine_tune(1, 0.05),
    "callbacks": lambda x: x.fit(3, 0.05, cbs=[SaveModelCallback(monitor="valid_loss"), EarlyStoppingCallback(patience=2), GradientClip(0.5), GradientAccumulation(32), ReduceLROnPlateau(patience=1)]),  # noqa: F405
}.items():
    learn = learner(metrics=[mae, rmse])  # noqa: F405
    with learn.no_bar(), learn.no_logging():
        fit(learn)
    tell(f"losses, {name}", [list(row) for row in learn.recorder.values], 1e-3)
    tell(f"rates, {name}", [len(learn.recorder.lrs), learn.recorder.lrs[-1]], 1e-4)
for name in ("Adam", "RAdam", "SGD", "ranger", "Lamb", "LARS" if "LARS" in globals() else "Larc", "RMSProp"):
    learn = learner(opt_func=globals()[name])
    with learn.no_bar(), learn.no_logging():
        learn.fit(2, 0.01)
    tell(f"losses by {name}", [list(row) for row in learn.recorder.values], 1e-3)
learn.save("kept")
tell("again", [plain(p) for p in learner().load("kept").model.parameters()], 1e-3)
tell("predicted", plain(list(learn.get_preds()))[0], 1e-3)
with learn.no_bar(), learn.no_logging():
    found = learner().lr_find(show_plot=False, num_it=20)
tell("found a rate", float(found.valley) > 0)

# --- pictures --------------------------------------------------------------------------------

rng = np.random.default_rng(0)
shown = []
for k in range(32):
    pixels = rng.integers(0, 90, (24, 24, 3)).astype(np.uint8)
    pixels[:, 12 * (k % 2):12 * (k % 2) + 12] += 120
    shown.append((Pictures.fromarray(pixels), "left" if k % 2 == 0 else "right"))


def picture(i):
    return PILImage(PILImage.create(np.asarray(shown[i][0])))  # noqa: F405


def side(i):
    return shown[i][1]


block = DataBlock((ImageBlock, CategoryBlock), get_x=picture, get_y=side, splitter=RandomSplitter(seed=1), item_tfms=Resize(20), batch_tfms=[*aug_transforms(size=16, max_rotate=5), Normalize.from_stats(*imagenet_stats)])  # noqa: F405
set_seed(2, True)
loaders = block.dataloaders(list(range(32)), bs=8, num_workers=0)
x, y = loaders.valid.one_batch()
tell("batch", [plain(x), plain(y), list(loaders.vocab)], 1e-3)
for _ in range(2):
    by_workers = list(block.dataloaders(list(range(32)), bs=8, num_workers=2).valid)
    tell("by workers", [[plain(x), plain(y)] for x, y in by_workers], 1e-3)
x, y = loaders.train.one_batch()
tell("augmented", [type(x).__name__, list(x.shape), type(y).__name__])
set_seed(3, True)
net = nn.Sequential(ConvLayer(3, 8), ConvLayer(8, 8, stride=2), AdaptiveConcatPool2d(1), Flatten(), LinBnDrop(16, 2))  # noqa: F405
learn = Learner(loaders, net, loss_func=CrossEntropyLossFlat(), metrics=accuracy, cbs=[MixUp(0.4)], path=".")  # noqa: F405
with learn.no_bar(), learn.no_logging():
    learn.fit_one_cycle(2, 1e-2)
tell("losses of pictures", [list(row)[:2] for row in learn.recorder.values], 2e-2)
tell("summary", "Total params" in str(learn.summary()))
learn.export("whole.pkl")  # holds no data: the blocks, the model
again = load_learner("whole.pkl")  # noqa: F405
with again.no_bar(), again.no_logging():
    tell("predicted again", plain(list(again.predict(3)))[2], 2e-2)
    tell("of a loader", plain(again.get_preds(dl=again.dls.test_dl([1, 2, 5]))[0]), 2e-2)
tell("its parameters", [plain(p) for p in again.model.parameters()], 2e-2)
