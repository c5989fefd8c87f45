"""One model of a package by its own training loop: `program.py torch|graphc PACKAGE MODEL OUT`.

Saves the logits, three losses, the first gradient and generated tokens; graphc's of eager mode, of
a compiled model and of a compiled step.
"""

import os
import sys
import tempfile

side, package, name, out = sys.argv[1:]
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
if side == "graphc":
    import graphc.compat

    graphc.compat.install()

import numpy as np
import torch
from torch.nn import functional as F


def timm_model():
    import timm

    size = {} if name.startswith(("resnet", "convnext")) else {"img_size": 64}
    model = timm.create_model(name, pretrained=False, num_classes=10, **size)
    return model, {"x": torch.randn(2, 3, 64, 64)}


def transformers_model():
    import transformers as t

    ids = torch.randint(3, 99, (2, 9))
    if name == "bert":
        config = t.BertConfig(
            vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=64,
        )
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        return t.BertForSequenceClassification(config), {"input_ids": ids, "attention_mask": mask}
    config = t.GPT2Config(
        vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
        eos_token_id=99, pad_token_id=99,
    )
    return t.GPT2LMHeadModel(config), {"input_ids": ids, "use_cache": False}


def train(mode):
    torch.manual_seed(0)
    model, given = timm_model() if package == "timm" else transformers_model()
    called = torch.compile(model) if mode == "model" else model
    found = {}
    model.eval()
    with torch.no_grad():
        result = called(**given)
        found["logits"] = getattr(result, "logits", result)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        logits = called(**given)
        logits = getattr(logits, "logits", logits).flatten(0, -2)
        loss = F.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1])
        loss.backward()
        optimizer.step()
        return loss

    stepped = torch.compile(step) if mode == "step" else step
    torch.manual_seed(1)  # dropout
    losses = []
    for _ in range(3):
        losses.append(stepped().item())
        if len(losses) == 1:
            gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
            found["gradient"] = torch.cat(gradients)
    found["losses"] = torch.tensor(losses)
    if name == "gpt2":
        generate(model.eval(), given["input_ids"], found)
    return {f"{mode}/{key}": value.detach().numpy() for key, value in found.items()}


def generate(model, ids, found):
    options = {"max_new_tokens": 8, "attention_mask": torch.ones_like(ids)}
    found["greedy"] = model.generate(ids, do_sample=False, **options)
    torch.manual_seed(2)
    found["sampled"] = model.generate(ids, do_sample=True, top_k=20, top_p=0.9, **options)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        found["loaded"] = type(model).from_pretrained(folder).eval()(ids).logits


results = {}
for mode in ("eager", "model", "step") if side == "graphc" else ("eager",):
    results.update(train(mode))
np.savez(out, **results)
