"""Hugging Face's Trainer: a small BERT learns which of two halves of the words a text uses more."""

import json
import os
import sys

import numpy as np
import torch
from datasets import Dataset
from told import on_graphc, own, tell
from transformers import (
    BertConfig, BertForSequenceClassification, DataCollatorWithPadding, EarlyStoppingCallback,
    PreTrainedTokenizerFast, Trainer, TrainerCallback, TrainingArguments, set_seed,
)

stage = sys.argv[1]
WITHIN = {"bf16": 2e-2, "compiled_bf16": 2e-2}.get(stage, 5e-5)


def data(count, seed):
    words = np.random.default_rng(seed)
    texts = [words.integers(4, 60, words.integers(5, 12)).tolist() for _ in range(count)]
    labels = [int(np.mean(text) > 31.5) for text in texts]
    made = Dataset.from_dict({"input_ids": texts, "labels": labels})
    return made.map(lambda row: {"attention_mask": [1] * len(row["input_ids"])})


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, **{f"w{i}": i for i in range(4, 64)}}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")


class Noting(TrainerCallback):
    """What a callback is told, in order."""

    def __init__(self):
        self.events, self.norms = [], []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.events.append(f"begin {type(kwargs['optimizer']).__name__} {model.training}")

    def on_epoch_end(self, args, state, control, **kwargs):
        self.events.append(f"epoch {state.epoch} step {state.global_step}")

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.norms.append(sum(p.grad.norm().item() for p in model.parameters()))

    def on_save(self, args, state, control, **kwargs):
        self.events.append(f"save {state.global_step}")

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.events.append(f"evaluate {sorted(metrics)}")

    def on_train_end(self, args, state, control, **kwargs):
        self.events.append(f"end {state.global_step} {state.best_global_step}")


def metrics(predicted):
    right = predicted.predictions.argmax(-1) == predicted.label_ids
    return {"accuracy": float(right.mean())}


def made(folder, **options):
    set_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, num_labels=2,
    )
    given = {
        "num_train_epochs": 3, "per_device_train_batch_size": 8, "per_device_eval_batch_size": 16,
        "learning_rate": 2e-3, "warmup_steps": 3, "weight_decay": 0.01, "logging_steps": 1,
        "eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True,
        "metric_for_best_model": "accuracy", "report_to": "none", "use_cpu": True,
        "gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "seed": 3, "disable_tqdm": True,
        **options,
    }
    words = tokenizer()
    noting = Noting()
    trainer = Trainer(
        BertForSequenceClassification(config), TrainingArguments(folder, **given),
        DataCollatorWithPadding(words), data(72, 1), data(32, 2), words, compute_metrics=metrics,
        callbacks=[noting] if given["eval_strategy"] == "no" else [noting, EarlyStoppingCallback(3)],
    )
    return trainer, noting


def tell_history(trainer, name):
    for key in ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy", "epoch"):
        values = [entry[key] for entry in trainer.state.log_history if key in entry]
        tell(f"{name}: {key}", values, 0 if key in ("epoch", "learning_rate") else WITHIN)


def tell_weights(model, name):
    weights = {key: value.float() for key, value in model.state_dict().items()}
    tell(f"{name}: weights", {k: [v.norm(), v.flatten()[:4]] for k, v in weights.items()}, 10 * WITHIN)


def shape_of(value):
    """What lies in a file: names, types, shapes and plain numbers."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {str(value.dtype)} {list(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {list(value.shape)}"
    if isinstance(value, dict):
        return {str(k): shape_of(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(shape_of, value)]
    return value if isinstance(value, (int, str, bool, type(None))) else type(value).__name__


def tell_checkpoint(folder):
    tell("files", sorted(os.listdir(folder)))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        found = torch.load(os.path.join(folder, name), weights_only=name != "rng_state.pth")
        tell(f"what is in {name}", shape_of(found))
    optimizer = torch.load(os.path.join(folder, "optimizer.pt"))["state"]
    moments = {k: [s["step"], s["exp_avg"].norm(), s["exp_avg_sq"].norm()] for k, s in optimizer.items()}
    tell("moments", moments, 100 * WITHIN)
    arguments = torch.load(os.path.join(folder, "training_args.bin"), weights_only=False)
    tell("arguments", [type(arguments).__name__, arguments.learning_rate, str(arguments.device)])
    state = json.load(open(os.path.join(folder, "trainer_state.json")))
    tell("state", [state["global_step"], state["max_steps"], state["best_global_step"], state["total_flos"]])


def train(**options):
    trainer, noting = made("out", **options)
    done = trainer.train()
    tell("train loss", done.training_loss, WITHIN)
    tell("events", noting.events)
    tell("norms", noting.norms, WITHIN)
    tell_history(trainer, stage)
    tell_weights(trainer.model, stage)
    tell("evaluate: loss", trainer.evaluate()["eval_loss"], WITHIN)
    predicted = trainer.predict(data(8, 3))
    tell("predicted", predicted.predictions, 10 * WITHIN)
    tell("test", [predicted.metrics["test_loss"], predicted.metrics["test_accuracy"]], WITHIN)
    return trainer


if stage in ("fp32", "bf16"):
    trainer = train(bf16=stage == "bf16")
    tell_checkpoint("out/checkpoint-5")
    trainer.save_model("saved")
    again = BertForSequenceClassification.from_pretrained("saved")
    tell_weights(again, "saved and loaded")
    resumed, _ = made("out2", bf16=stage == "bf16", num_train_epochs=3)
    resumed.train(resume_from_checkpoint="out/checkpoint-10")
    tell_history(resumed, "resumed")
    tell("resumed ends where it went", [
        (a - b).abs().max().item() < 1e-6
        for a, b in zip(resumed.model.state_dict().values(), trainer.model.state_dict().values())
    ])
    middle, _ = made("out3", save_strategy="steps", save_steps=3, eval_strategy="no", load_best_model_at_end=False)
    middle.train()
    halfway, _ = made("out4", save_strategy="no", eval_strategy="no", load_best_model_at_end=False)
    halfway.train(resume_from_checkpoint="out3/checkpoint-3")  # in the middle of an epoch
    tell_history(halfway, "from the middle")
    tell_weights(halfway.model, "from the middle")
elif stage == "swap":  # the other side's checkpoint
    trainer, _ = made("swapped_graphc" if on_graphc() else "swapped_torch", num_train_epochs=3)
    done = trainer.train(resume_from_checkpoint="out/checkpoint-5")
    tell_history(trainer, "swapped")
    tell_weights(trainer.model, "swapped")
elif stage in ("compiled", "compiled_bf16"):
    trainer = train(
        torch_compile=True, torch_compile_backend=None if on_graphc() else "eager",
        bf16=stage == "compiled_bf16",
    )
    tell("compiled", [type(trainer.model_wrapped).__name__ != "BertForSequenceClassification" or on_graphc(),
                      isinstance(trainer.model_wrapped, torch._dynamo.eval_frame.OptimizedModule)])
    if on_graphc():
        function = trainer.model_wrapped._compiled_function
        segments = function.segments
        own("versions", function.compile_count)
        own("segments", [] if segments is None else [f"{end.reason} at {end.loc}" for end in segments.ends])
        assert function.compile_count >= 1 and segments is None, "the model runs in segments"
elif stage == "options":
    trainer, noting = made(
        "out5", lr_scheduler_type="cosine", optim="adamw_torch_fused", gradient_checkpointing=True,
        label_smoothing_factor=0.1, neftune_noise_alpha=5.0, dataloader_num_workers=2,
        dataloader_persistent_workers=True, dataloader_pin_memory=False, max_steps=6,
        train_sampling_strategy="group_by_length", eval_strategy="steps", eval_steps=3,
        save_strategy="steps", save_steps=3, save_total_limit=1, include_num_input_tokens_seen=True,
        torch_empty_cache_steps=2, eval_accumulation_steps=1,
    )
    done = trainer.train()
    tell("options: train loss", done.training_loss, WITHIN)
    tell_history(trainer, "options")
    tell_weights(trainer.model, "options")
    tell("left", sorted(os.listdir("out5")))
    trainer, _ = made(
        "out6", optim="adafactor", lr_scheduler_type="constant_with_warmup", max_steps=4,
        eval_strategy="no", save_strategy="no", load_best_model_at_end=False, full_determinism=True,
    )
    trainer.train()
    tell_history(trainer, "adafactor")
    trainer, _ = made(
        "out7", optim="sgd", lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs={"patience": 0},
        num_train_epochs=3, auto_find_batch_size=True,
    )
    trainer.train()
    tell_history(trainer, "plateau")
