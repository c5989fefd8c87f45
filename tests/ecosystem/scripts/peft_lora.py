"""peft: adapters of a small GPT-2 trained, merged, saved, and loaded by the other side."""

import os
import sys

import torch
from peft import (
    AdaLoraConfig, IA3Config, LoraConfig, LoHaConfig, PeftModel, PrefixTuningConfig,
    PromptTuningConfig, TaskType, VeraConfig, get_peft_model, get_peft_model_state_dict,
    inject_adapter_in_model,
)
from safetensors.torch import load_file
from told import on_graphc, own, tell
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

stage = sys.argv[1]
CAUSAL = TaskType.CAUSAL_LM
KINDS = {
    "lora": LoraConfig(task_type=CAUSAL, r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True),
    "rslora": LoraConfig(task_type=CAUSAL, r=4, use_rslora=True, init_lora_weights="gaussian", target_modules=["c_attn", "c_fc"], bias="lora_only", fan_in_fan_out=True),
    "pissa": LoraConfig(task_type=CAUSAL, r=4, init_lora_weights="pissa", target_modules=["c_attn"], fan_in_fan_out=True),
    "dora": LoraConfig(task_type=CAUSAL, r=4, use_dora=True, target_modules=["c_attn"], fan_in_fan_out=True),
    "adalora": AdaLoraConfig(task_type=CAUSAL, init_r=6, target_r=3, tinit=1, tfinal=1, total_step=6, target_modules=["c_attn"], fan_in_fan_out=True),
    "ia3": IA3Config(task_type=CAUSAL, target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"], fan_in_fan_out=True),
    "prompt": PromptTuningConfig(task_type=CAUSAL, num_virtual_tokens=4),
    "prefix": PrefixTuningConfig(task_type=CAUSAL, num_virtual_tokens=3),
}
MERGED = ("lora", "rslora", "dora", "ia3")


def base():
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=60, n_positions=40, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    ))


def batch():
    return torch.randint(3, 60, (4, 12), generator=torch.Generator().manual_seed(5))


def train(model, call=None, steps=4):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    ids, losses = batch(), []
    set_seed(2)
    for step in range(steps):
        loss = (model if call is None else call)(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        optimizer.step()
        if hasattr(model.base_model, "update_and_allocate"):
            model.base_model.update_and_allocate(step)
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def logits(model):
    with torch.no_grad():
        ids = batch()
        return model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, -1, :6]


if stage == "write":
    for name, config in KINDS.items():
        model = get_peft_model(base(), config)
        tell(f"{name}: sizes", list(model.get_nb_trainable_parameters()))
        loose = 1e-3 if name == "pissa" else 5e-5  # of a singular vector's sign nothing hangs
        tell(f"{name}: losses", train(model), loose)
        result = logits(model)
        tell(f"{name}: logits", result, 20 * loose)
        tell(f"{name}: state", sorted(get_peft_model_state_dict(model)))
        model.save_pretrained(name)
        tell(f"{name}: files", sorted(os.listdir(name)))
        if name not in ("prompt", "prefix"):
            with model.disable_adapter():
                tell(f"{name}: off", logits(model), 1e-3 if name == "pissa" else 1e-5)
        ids = batch()[:1, :5]
        tell(f"{name}: generated", model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=5))
        if name in MERGED:
            merged = model.merge_and_unload()
            apart = (logits(merged) - result).abs().max().item()
            tell(f"{name}: merged", [type(merged).__name__, apart < 1e-4 * result.abs().max().item()])
            merged.save_pretrained(f"{name}-merged")
    model = get_peft_model(base(), KINDS["lora"])
    model.add_adapter("second", KINDS["dora"])
    model.set_adapter("second")
    tell("two: losses", train(model), 5e-5)
    model.add_weighted_adapter(["default", "default"], [0.5, 0.3], "sum", combination_type="linear")
    model.set_adapter("sum")
    tell("sum", logits(model), 1e-3)
    model.delete_adapter("second")
    tell("left", sorted(model.peft_config))
    net = inject_adapter_in_model(LoraConfig(target_modules=["0"], r=2), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    tell("injected", [name for name, _ in net.named_parameters()])
    convolved = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    tell("of a convolution", [n for n, p in get_peft_model(convolved, LoraConfig(target_modules=["0", "3"], modules_to_save=[])).named_parameters() if p.requires_grad])
    try:
        VeraConfig(r=4), LoHaConfig(r=4)
        tell("more kinds", True)
    except TypeError:
        tell("more kinds", False)
    model = get_peft_model(base(), KINDS["lora"])
    call = torch.compile(model, **({} if on_graphc() else {"backend": "eager"}))
    tell("compiled: losses", train(model, call), 5e-5)
    if on_graphc():
        function = call._compiled_function
        own("versions", function.compile_count)
        own("segments", function.segments and [f"{e.reason} at {e.loc}" for e in function.segments.ends])
else:  # what the other side has written
    for name in KINDS:
        file = load_file(os.path.join(name, "adapter_model.safetensors"))
        tell(f"{name}: file", {key: [str(v.dtype), list(v.shape), v.norm()] for key, v in sorted(file.items())}, 2e-3)
        if name == "pissa":
            continue
        model = PeftModel.from_pretrained(base(), name, is_trainable=name not in ("prompt", "prefix"))
        tell(f"{name}: loaded", logits(model), 2e-3)
        model.train()
        if name not in ("adalora", "prompt", "prefix"):
            tell(f"{name}: losses, further", train(model, steps=2), 1e-3)
    for name in MERGED:
        tell(f"{name}: merged, loaded", logits(GPT2LMHeadModel.from_pretrained(f"{name}-merged")), 2e-3)
