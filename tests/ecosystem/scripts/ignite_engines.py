"""pytorch-ignite: engines, metrics, handlers, schedules, checkpoints, resumed."""

import os

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, EMAHandler, FastaiLRFinder, ModelCheckpoint, TerminateOnNan, Timer, global_step_from_engine
from ignite.handlers.param_scheduler import ConcatScheduler, CosineAnnealingScheduler, LinearCyclicalScheduler, LRScheduler, PiecewiseLinear, create_lr_scheduler_with_warmup
from ignite.metrics import SSIM, Accuracy, Average, Bleu, ClassificationReport, ConfusionMatrix, DiceCoefficient, EpochMetric, Fbeta, IoU, Loss, MeanAbsoluteError, MeanSquaredError, MetricsLambda, Precision, Recall, RunningAverage, TopKCategoricalAccuracy
from told import tell
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(96, 6)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
data = TensorDataset(x, y)


def made():
    torch.manual_seed(3)  # with 1, two logits are the same number but for the rounding
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    return model, torch.optim.Adam(model.parameters(), 0.01)


def metrics():
    precision, recall = Precision(average=False), Recall(average=False)
    return {
        "accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss()), "precision": precision, "recall": recall,
        "f1": (precision * recall * 2 / (precision + recall + 1e-20)).mean(), "fbeta": Fbeta(2.0), "top 2": TopKCategoricalAccuracy(2),
        "confusion": ConfusionMatrix(3), "iou": IoU(ConfusionMatrix(3)), "dice": DiceCoefficient(ConfusionMatrix(3)),
        "own": EpochMetric(lambda p, t: float((p.argmax(1) == t).float().mean())), "half": MetricsLambda(lambda a: a / 2, Accuracy()),
    }


for compiled in (False, True):
    model, optimizer = made()
    trainer = create_supervised_trainer(torch.compile(model) if compiled else model, optimizer, nn.CrossEntropyLoss(), gradient_accumulation_steps=2 if compiled else 1)
    evaluator = create_supervised_evaluator(model, metrics=metrics())
    losses, found = [], []
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
    trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
    schedule = create_lr_scheduler_with_warmup(torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.8), 0.001, 5)
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
    timer = Timer(average=True)
    timer.attach(trainer, step=Events.ITERATION_COMPLETED)

    @trainer.on(Events.ITERATION_COMPLETED(every=2))
    def note(engine, losses=losses, optimizer=optimizer):
        losses.append([engine.state.output, engine.state.metrics["running"], optimizer.param_groups[0]["lr"]])

    @trainer.on(Events.EPOCH_COMPLETED)
    def look(engine, found=found, evaluator=evaluator):
        evaluator.run(DataLoader(data, 32))
        found.append({k: v for k, v in evaluator.state.metrics.items()})

    keep = ModelCheckpoint(f"kept{compiled}", "best", n_saved=2, score_function=lambda e: e.state.metrics["accuracy"], score_name="accuracy", global_step_transform=global_step_from_engine(trainer), require_empty=False)
    evaluator.add_event_handler(Events.COMPLETED, keep, {"model": model})
    stop = EarlyStopping(3, lambda e: -e.state.metrics["loss"], trainer)
    evaluator.add_event_handler(Events.COMPLETED, stop)
    averaged = EMAHandler(model, momentum=0.1)
    averaged.attach(trainer, event=Events.ITERATION_COMPLETED)
    trainer.run(DataLoader(data, 16, shuffle=True), max_epochs=4)
    kind = "compiled" if compiled else "eager"
    tell(f"losses, {kind}", losses, 1e-3)
    tell(f"metrics, {kind}", found, 1e-5)
    tell(f"kept, {kind}", len(os.listdir(f"kept{compiled}")))
    tell(f"averaged, {kind}", [p.sum() for p in averaged.ema_model.parameters()], 1e-3)

# --- the state of everything, saved and resumed ----------------------------------------------

model, optimizer = made()
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), deterministic=True)
everything = {"model": model, "optimizer": optimizer, "trainer": trainer}
saver = Checkpoint(everything, DiskSaver("state", require_empty=False), n_saved=3)
trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
torch.manual_seed(5)
trainer.run(DataLoader(data, 16, shuffle=True), max_epochs=3)
want = [p.detach().clone() for p in model.parameters()]
model, optimizer = made()
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), deterministic=True)
first = sorted(os.listdir("state"), key=lambda name: int(name.split("_")[-1].split(".")[0]))[1]
Checkpoint.load_objects({"model": model, "optimizer": optimizer, "trainer": trainer}, torch.load(f"state/{first}", weights_only=False))
tell("resumed at", [trainer.state.epoch, trainer.state.iteration])
torch.manual_seed(5)
trainer.run(DataLoader(data, 16, shuffle=True), max_epochs=3)
tell("resumed", [p.sum() for p in model.parameters()], 1e-3)
tell("of the first run", [p.sum() for p in want], 1e-3)

# --- schedules, a search for a rate, an engine of one's own, amp -----------------------------

weight = nn.Parameter(torch.zeros(1))
for schedule in (
    LinearCyclicalScheduler(torch.optim.SGD([weight], 0.1), "lr", 0.1, 0.01, 6), CosineAnnealingScheduler(torch.optim.SGD([weight], 0.1), "lr", 0.1, 0.0, 8),
    PiecewiseLinear(torch.optim.SGD([weight], 0.1), "lr", [(0, 0.1), (5, 0.01), (9, 0.05)]),
    LRScheduler(torch.optim.lr_scheduler.ExponentialLR(torch.optim.SGD([weight], 0.1), 0.9)),
):
    seen = []
    engine = Engine(lambda e, b, s=schedule, seen=seen: seen.append(s.optimizer.param_groups[0]["lr"]))
    engine.add_event_handler(Events.ITERATION_STARTED, schedule)
    engine.run([0] * 10, max_epochs=1)
    tell(f"rates, {type(schedule).__name__}", seen, 1e-6)
sgd = torch.optim.SGD([weight], 0.1)
joined = ConcatScheduler([LinearCyclicalScheduler(sgd, "lr", 0.0, 0.1, 6), CosineAnnealingScheduler(sgd, "lr", 0.1, 0.0, 8)], [3])
tell("joined", [value for _, value in ConcatScheduler.simulate_values(8, joined.schedulers, [3])], 1e-6)
model, optimizer = made()
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
finder = FastaiLRFinder()
with finder.attach(trainer, {"model": model, "optimizer": optimizer}, num_iter=20, end_lr=1.0) as searching:
    searching.run(DataLoader(data, 16))
tell("rates tried", [finder.get_results()["lr"], finder.get_results()["loss"]], 1e-2)
model, optimizer = made()
mixed = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), amp_mode=None, output_transform=lambda x, y, p, loss: (p, y, loss.item()))
Accuracy(output_transform=lambda out: out[:2]).attach(mixed, "accuracy")
Average(output_transform=lambda out: out[2]).attach(mixed, "mean loss")
mixed.run(DataLoader(data, 32), max_epochs=2)
tell("attached", [mixed.state.metrics["accuracy"], mixed.state.metrics["mean loss"]], 1e-3)


def computed(metric, *batches):
    metric.reset()
    for batch in batches:
        metric.update(batch)
    return metric.compute()


pictures = torch.rand(4, 3, 24, 24)
tell("pictures", [computed(SSIM(1.0), (pictures, (pictures + 0.1).clamp(0, 1))), computed(MeanSquaredError(), (x, x + 0.5)), computed(MeanAbsoluteError(), (x, x * 2))], 1e-4)
tell("words", computed(Bleu(ngram=2, smooth="smooth1"), (["a b c d".split()], [["a b d d".split(), "a b c".split()]])), 1e-5)
tell("report", str(computed(ClassificationReport(output_dict=True), (torch.eye(3)[y], y)))[:300])
