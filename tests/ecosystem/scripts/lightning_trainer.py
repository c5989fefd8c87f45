"""Lightning's Trainer at its defaults, and then with most of what it offers."""

import csv
import glob
import os
import random
import sys
import warnings

import lightning as L
import numpy as np
import torch
import torchmetrics
from lightning.pytorch import callbacks as C
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities.model_summary import ModelSummary
from told import on_graphc, own, tell
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info, random_split

stage = sys.argv[1]
warnings.filterwarnings("ignore")


class Data(L.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.save_hyperparameters()
        self.batch_size = batch_size

    def prepare_data(self):
        self.prepared = True

    def setup(self, stage):
        draws = torch.Generator().manual_seed(3)
        x = torch.randn(160, 1, 12, 12, generator=draws)
        y = (x.mean((1, 2, 3)) * 12 + x[:, 0, :4].mean((1, 2)) * 8).round().long().clamp(-1, 1) + 1
        self.parts = random_split(TensorDataset(x, y), [112, 32, 16], generator=draws)

    def train_dataloader(self):
        return DataLoader(self.parts[0], batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.parts[1], batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.parts[2], batch_size=self.batch_size)

    predict_dataloader = test_dataloader


class Net(L.LightningModule):
    def __init__(self, width=8, lr=5e-3, example=True):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        )
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width * 36, 3)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.scores = torchmetrics.MetricCollection({
            "f1": torchmetrics.F1Score("multiclass", num_classes=3, average="macro"),
            "auc": torchmetrics.AUROC("multiclass", num_classes=3),
        }, prefix="val/")
        if example:
            self.example_input_array = torch.zeros(4, 1, 12, 12)
        self.noted = []

    def forward(self, x):
        return self.head(self.drop(self.body(x)))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.accuracy(logits, y)
        self.log("train/loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        self.log("train/accuracy", self.accuracy, on_epoch=True, on_step=False)
        self.noted.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.scores.update(logits.softmax(-1), y)
        self.log_dict({"val/loss": nn.functional.cross_entropy(logits, y)}, prog_bar=True)

    def on_validation_epoch_end(self):
        self.log_dict(self.scores.compute())
        self.scores.reset()

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        x, y = batch
        self.log("test/loss", nn.functional.cross_entropy(self(x), y))

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).argmax(-1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def trainer(**options):
    given = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "log_every_n_steps": 1}
    return L.Trainer(**{**given, **options})


def fresh(seed=1, **options):
    L.seed_everything(seed)
    return Net(**options), Data()


def tell_run(name, model, ran, within=2e-5):
    tell(f"{name}: losses", model.noted, within)
    found = {key: value for key, value in ran.logged_metrics.items()}
    tell(f"{name}: logged loss", {k: v for k, v in found.items() if "loss" in k}, within)
    tell(f"{name}: logged", {k: v for k, v in found.items() if "loss" not in k}, 5e-3)
    tell(f"{name}: shown", sorted(ran.progress_bar_metrics))
    tell(f"{name}: weights", [p.double().norm() for p in model.parameters()], 20 * within)


def shape_of(value):
    """What lies in a file: names, types, shapes and plain numbers."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, dict):
        return {str(k): shape_of(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [shape_of(inner) for inner in value]
    return value if isinstance(value, (int, bool, type(None))) else type(value).__name__


def tell_file(path):
    found = torch.load(path, weights_only=True)
    tell("file: names", list(found))
    tell("file: what is in it", shape_of({k: v for k, v in found.items() if k not in ("callbacks", "loops")}))
    tell("file: loops", shape_of(found["loops"]))
    tell("file: callbacks", sorted(key.split("{")[0] for key in found["callbacks"]))
    optimizer = found["optimizer_states"][0]
    tell("file: moments", [s["exp_avg"].double().norm() for s in optimizer["state"].values()], 1e-3)
    tell("file: rates", [g["lr"] for g in optimizer["param_groups"]], 1e-12)


def defaults():
    """A Trainer as it comes: logger, checkpoints, summary."""
    model, data = fresh()
    ran = L.Trainer(max_epochs=2, accelerator="cpu", log_every_n_steps=2)
    ran.fit(model, data)
    tell("defaults: kinds", [type(x).__name__ for x in [ran.logger, ran.strategy, *ran.callbacks]])
    tell_run("defaults", model, ran)
    tell("defaults: files", sorted(os.path.relpath(p, ran.logger.log_dir) for p in glob.glob(f"{ran.logger.log_dir}/**/*.ckpt", recursive=True)))
    tell("defaults: validate loss", ran.validate(model, data)[0]["val/loss"], 2e-5)
    tell("defaults: test loss", ran.test(model, data, ckpt_path="best")[0]["test/loss"], 2e-5)
    tell("defaults: predicted", ran.predict(model, data))
    summary = ModelSummary(model, max_depth=-1)
    tell("summary", [summary.total_parameters, summary.total_flops, summary.in_sizes, summary.out_sizes])
    tell("summary: table", str(summary))
    tell("flops", {name: sum(counts.values()) for name, counts in summary.flop_counts.items()})


def whole():
    """Checkpoints, early stopping, clipping, accumulation, resuming."""
    model, data = fresh()
    best = C.ModelCheckpoint("kept", "{epoch}-{step}", monitor="val/loss", save_top_k=2, save_last=True)
    stop = C.EarlyStopping("val/loss", patience=2, min_delta=1e-3)
    ran = trainer(
        max_epochs=4, callbacks=[best, stop, C.LearningRateMonitor("step"), C.Timer(), C.GradientAccumulationScheduler({0: 1, 2: 2})],
        gradient_clip_val=0.5, logger=CSVLogger("logs", "whole"), deterministic=True, profiler="simple",
    )
    ran.fit(model, data)
    tell_run("whole", model, ran)
    tell("whole: kept", sorted(os.listdir("kept")))
    tell("whole: best loss", best.best_model_score, 2e-5)
    tell("whole: stopped", [stop.stopped_epoch, stop.wait_count, ran.global_step])
    rows = list(csv.DictReader(open(f"{ran.logger.log_dir}/metrics.csv")))
    tell("whole: columns", [sorted(rows[0]), len(rows)])
    tell("whole: rates", [float(r["lr-AdamW"]) for r in rows if r["lr-AdamW"]], 1e-9)
    tell("whole: hparams", open(f"{ran.logger.log_dir}/hparams.yaml").read())
    tell_file("kept/last.ckpt")
    again = Net.load_from_checkpoint(best.best_model_path)
    tell("whole: loaded", [p.double().norm() for p in again.parameters()], 5e-4)
    tell("whole: hparams again", dict(again.hparams))


def resume(name):
    """From kept/last.ckpt, be it this side's or the other's."""
    model, data = fresh(7)
    ran = trainer(max_epochs=6, logger=False, enable_checkpointing=False)
    ran.fit(model, data, ckpt_path="kept/last.ckpt")
    tell_run(name, model, ran, 1e-4)
    tell(f"{name}: steps", [ran.global_step, ran.current_epoch])


class Pair(L.LightningModule):
    """Two optimizers by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge, self.noted = nn.Linear(4, 6), nn.Linear(6, 1), []

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        real = batch[0]
        self.toggle_optimizer(second)
        draws = torch.randn(len(real), 4)
        made = self.maker(draws)
        loss = nn.functional.softplus(-self.judge(real)).mean() + nn.functional.softplus(self.judge(made.detach())).mean()
        second.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(second, 0.5, "norm")
        second.step()
        self.untoggle_optimizer(second)
        self.toggle_optimizer(first)
        fooled = nn.functional.softplus(-self.judge(self.maker(draws))).mean()
        first.zero_grad()
        self.manual_backward(fooled)
        first.step()
        self.untoggle_optimizer(first)
        self.lr_schedulers().step()
        self.log_dict({"judge": loss, "maker": fooled})
        self.noted += [loss.item(), fooled.item()]

    def configure_optimizers(self):
        first = torch.optim.Adam(self.maker.parameters(), 1e-2)
        return [first, torch.optim.SGD(self.judge.parameters(), 0.1)], [torch.optim.lr_scheduler.StepLR(first, 3)]


def more():
    for precision in ("bf16-mixed", "bf16-true", "64-true", "16-mixed"):
        model, data = fresh()
        ran = trainer(precision=precision, max_epochs=1, logger=False, enable_checkpointing=False, enable_model_summary=False)
        try:
            ran.fit(model, data)
        except Exception as error:
            tell(f"{precision}: refused", type(error).__name__)
            continue
        tell(f"{precision}: losses", model.noted, 1e-10 if precision == "64-true" else 3e-2)
        tell(f"{precision}: kind", str(next(model.parameters()).dtype))
    model, data = fresh()
    trainer(accumulate_grad_batches=3, limit_val_batches=1, val_check_interval=3, logger=False, num_sanity_val_steps=0).fit(model, data)
    tell("accumulated: losses", model.noted, 2e-5)
    model, data = fresh()
    ran = L.Trainer(fast_dev_run=True, accelerator="cpu", enable_progress_bar=False)
    ran.fit(model, data)
    tell("one batch: losses", model.noted, 2e-5)
    model, data = fresh()
    ran = trainer(overfit_batches=2, max_epochs=5, logger=False, enable_checkpointing=False)
    ran.fit(model, data)
    tell("few batches: losses", model.noted, 5e-5)
    model, data = fresh(example=False)
    ran = trainer(logger=False, enable_checkpointing=False, enable_model_summary=False)
    found = Tuner(ran).lr_find(model, data, num_training=30)
    tell("found: rates", found.results["lr"], 1e-9)
    tell("found: losses", found.results["loss"], 1e-3)
    model, data = fresh(example=False)
    ran = trainer(logger=False, enable_checkpointing=False, enable_model_summary=False)
    tell("batch size", Tuner(ran).scale_batch_size(model, data, steps_per_trial=1, max_trials=3))
    for name, callback in {
        "averaged": C.StochasticWeightAveraging(1e-2, swa_epoch_start=1), "ema": C.EMAWeightAveraging(decay=0.9),
        "pruned": C.ModelPruning("l1_unstructured", parameters_to_prune=None, amount=0.3),
    }.items():
        model, data = fresh(example=False)
        ran = trainer(callbacks=[callback], max_epochs=3, logger=False, enable_checkpointing=False, enable_model_summary=False)
        ran.fit(model, data)
        tell(f"{name}: losses", model.noted, 5e-5)
        tell(f"{name}: weights", [p.double().norm() for p in model.parameters()], 1e-3)
    L.seed_everything(2)
    pair = Pair()
    rows = TensorDataset(torch.randn(64, 6))
    trainer(logger=False, enable_checkpointing=False).fit(pair, DataLoader(rows, batch_size=16, shuffle=True, num_workers=2))
    tell("by hand: losses", pair.noted, 5e-5)
    model, data = fresh()
    trainer(profiler="pytorch", max_epochs=1, logger=False, enable_checkpointing=False).fit(model, data)
    tell("profiled: losses", model.noted, 2e-5)
    model, data = fresh()
    trainer(detect_anomaly=True, max_epochs=1, logger=False, barebones=False).fit(model, data)
    tell("anomalies: losses", model.noted, 2e-5)


class Plain(L.LightningModule):
    """What a compiled training_step can be one graph of: it logs nothing."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.noted = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.noted.append(outputs["loss"].item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def compiled():
    options = {} if on_graphc() else {"backend": "eager"}
    model, data = fresh()
    ran = trainer(logger=False, enable_checkpointing=False)
    # PyTorch's own compiler stops at Lightning's log()
    ran.fit(torch.compile(model) if on_graphc() else model, data)
    tell_run("compiled", model, ran)
    tell("compiled: predicted", ran.predict(model, data))
    L.seed_everything(4)
    x = torch.randn(64, 8)
    plain = Plain()
    ran = trainer(logger=False, enable_checkpointing=False, max_epochs=3)
    ran.fit(torch.compile(plain, **options), DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True))
    tell("plain: losses", plain.noted, 2e-5)
    tell("plain: unwrapped", [type(ran.lightning_module).__name__, ran.lightning_module is plain])
    model, data = fresh()
    model.body = torch.compile(model.body, **options)
    ran = trainer(logger=False, enable_checkpointing=False)
    ran.fit(model, data)
    tell("a part compiled: losses", model.noted, 2e-5)
    if on_graphc():
        step = plain.training_step
        own("versions of a step", getattr(step, "compile_count", None))
        own("segments of a step", getattr(step, "segments", None) and [f"{e.reason} at {e.loc}" for e in step.segments.ends])
        own("versions of a part", model.body._compiled_function.compile_count)
        assert model.body._compiled_function.compile_count >= 1


def command_line():
    from lightning.pytorch.cli import LightningCLI

    for number, words in enumerate((
        ["fit", "--optimizer=SGD", "--optimizer.lr=0.01", "--lr_scheduler=ExponentialLR", "--lr_scheduler.gamma=0.9"],
        ["fit", "--model.width=4", "--data.batch_size=32", "--trainer.callbacks+=LearningRateMonitor"],
    )):
        cli = LightningCLI(
            Net, Data, args=[*words, "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.logger=CSVLogger", f"--trainer.logger.save_dir=cli{number}", "--trainer.enable_progress_bar=false"],
            seed_everything_default=5, save_config_kwargs={"overwrite": True},
        )
        tell(f"command line {number}: losses", cli.model.noted, 2e-5)
        tell(f"command line {number}: kinds", [type(o).__name__ for o in cli.trainer.optimizers])


class Stream(IterableDataset):
    """Rows of which each worker makes its share; what it draws, its own seed says."""

    def __iter__(self):
        worker = get_worker_info()
        for row in range(worker.id, 24, worker.num_workers):
            yield torch.full((6,), row / 24.0) + torch.rand(6), float(random.random()), float(np.random.rand())


class OfRows(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.noted, self.seen = nn.Linear(6, 1), [], []

    def training_step(self, batch, index):
        x, drawn, of_numpy = batch
        self.seen.append([x.sum().item(), drawn.tolist(), of_numpy.tolist()])
        loss = self.layer(x).square().mean() + drawn.mean().float() * 0.1
        self.noted.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


def workers():
    for name, options in {
        "kept": {"persistent_workers": True}, "ahead": {"prefetch_factor": 4, "pin_memory": True}, "forked": {"multiprocessing_context": "fork", "timeout": 60},
    }.items():
        L.seed_everything(7, workers=True, verbose=False)
        model = OfRows()
        trainer(max_epochs=2, logger=False, enable_checkpointing=False).fit(model, DataLoader(Stream(), batch_size=4, num_workers=2, **options))
        tell(f"workers {name}: losses", model.noted, 2e-5)
        tell(f"workers {name}: rows", model.seen, 1e-6)
    L.seed_everything(8, workers=True, verbose=False)
    data = Data()
    data.train_dataloader = lambda: DataLoader(data.parts[0], batch_size=16, shuffle=True, num_workers=2, worker_init_fn=lambda number: torch.manual_seed(number))
    model = Net()
    trainer(max_epochs=2, logger=False, enable_checkpointing=False).fit(model, data)
    tell("workers of a map: losses", model.noted, 2e-5)


if stage == "write":
    defaults()
    whole()
    resume("resumed")
elif stage == "swap":
    resume("swapped")
elif stage == "more":
    more()
elif stage == "compiled":
    compiled()
elif stage == "command_line":
    command_line()
elif stage == "workers":
    workers()
