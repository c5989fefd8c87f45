"""pytorch_forecasting, tianshou, and Lightning under its older name with worker processes."""

import sys
import tempfile
import types
import warnings

import torch
from told import on_graphc, tell

if not on_graphc():  # torchvision's wheel is built for another PyTorch than the CPU's: no operators
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("without_operators")
warnings.filterwarnings("ignore")

from torch import nn  # noqa: E402


def forecasting():
    import pandas as pd, numpy as np, lightning.pytorch as L
    from pytorch_forecasting import TimeSeriesDataSet, TemporalFusionTransformer, QuantileLoss
    L.seed_everything(0, verbose=False)
    d = pd.DataFrame({"t": list(range(40)) * 2, "g": ["a"] * 40 + ["b"] * 40, "v": np.sin(np.arange(80) / 5).astype("float32") + 2})
    ds = TimeSeriesDataSet(d, time_idx="t", target="v", group_ids=["g"], max_encoder_length=8, max_prediction_length=3, static_categoricals=["g"], time_varying_unknown_reals=["v"], time_varying_known_reals=["t"])
    dl = ds.to_dataloader(train=True, batch_size=16, num_workers=0)
    m = TemporalFusionTransformer.from_dataset(ds, hidden_size=8, attention_head_size=1, hidden_continuous_size=4, loss=QuantileLoss(), log_interval=0)
    t = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, limit_train_batches=3, gradient_clip_val=.1); t.fit(m, dl)
    p = m.predict(ds.to_dataloader(train=False, batch_size=16), trainer_kwargs=dict(accelerator="cpu", logger=False, enable_progress_bar=False))
    return [float(t.callback_metrics["train_loss_epoch"]), p[:5]]


def tianshou():
    import numpy as np
    from tianshou.utils.net.common import Net
    torch.manual_seed(0); np.random.seed(0)
    from tianshou.data import Batch, ReplayBuffer
    b = Batch(a=torch.ones(3, 2), b=np.zeros(3)); r = [b[0].a, len(b), Batch.stack([b, b]).a.shape[0]]
    n = Net(state_shape=4, action_shape=2, hidden_sizes=[16, 16]); r.append(n(torch.ones(3, 4))[0])
    buf = ReplayBuffer(10)
    for i in range(6): buf.add(Batch(obs=np.full(4, i, dtype=np.float32), act=i % 2, rew=float(i), terminated=False, truncated=False, obs_next=np.full(4, i + 1., dtype=np.float32), info={}))
    s, idx = buf.sample(4); r += [s.rew, idx]
    return r


def older_lightning():
    import pytorch_lightning as L
    from torch.utils.data import DataLoader, TensorDataset
    L.seed_everything(0, verbose=False)
    X = torch.randn(64, 4); Y = X.sum(1, keepdim=True); seen = []
    class M(L.LightningModule):
        def __init__(s): super().__init__(); s.l = nn.Linear(4, 1)
        def training_step(s, b, i): loss = (s.l(b[0]) - b[1]).pow(2).mean(); s.log("train_loss", loss); seen.append(loss.item()); return loss
        def validation_step(s, b, i): s.log("val_loss", (s.l(b[0]) - b[1]).pow(2).mean())
        def configure_optimizers(s): return torch.optim.SGD(s.parameters(), 0.05)
    d = tempfile.mkdtemp()
    kw = dict(max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=d, num_sanity_val_steps=0)
    dl = DataLoader(TensorDataset(X, Y), 16, shuffle=True, num_workers=2, persistent_workers=True); vl = DataLoader(TensorDataset(X, Y), 32, num_workers=1)
    ck = L.callbacks.ModelCheckpoint(dirpath=d, monitor="val_loss", save_last=True)
    m = M(); t = L.Trainer(callbacks=[ck, L.callbacks.EarlyStopping("val_loss", patience=1)], **kw); t.fit(m, dl, vl)
    r = [list(seen), float(ck.best_model_score)]; seen.clear()
    m2 = M.load_from_checkpoint(ck.best_model_path); r.append(m2.l.weight)
    kw["max_epochs"] = 5; m3 = M(); L.Trainer(**kw).fit(m3, dl, ckpt_path=d + "/last.ckpt"); r.append(list(seen)); seen.clear()
    m4 = M(); kw["max_epochs"] = 1; L.Trainer(precision="bf16-mixed", **kw).fit(m4, dl); r.append([round(x, 1) for x in seen])
    return r


for part in (forecasting, tianshou, older_lightning,):
    for k, value in enumerate(part()):
        tell(f"{part.__name__}, {k}", value, 1e-4)
