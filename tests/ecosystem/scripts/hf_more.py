"""transformers beyond the plain Trainer: loading in ways, attention kinds, streams, Seq2SeqTrainer,
pipelines, perplexity by hand."""

import os
import sys

import numpy as np
import torch
from datasets import Dataset
from told import on_graphc, own, tell
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig, AutoModelForCausalLM, DataCollatorForLanguageModeling, DataCollatorForSeq2Seq,
    GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast,
    Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration, Trainer,
    TrainingArguments, ViTConfig, ViTForImageClassification, WhisperConfig,
    WhisperForConditionalGeneration, pipeline, set_seed,
)

assert sys.argv[1] == "run"


def tokenizer():
    words = {"[PAD]": 0, "[UNK]": 1, "[EOS]": 2, "[MASK]": 3, **{f"w{i}": i for i in range(4, 64)}}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", mask_token="[MASK]",
    )


def gpt2(**options):
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=2, eos_token_id=2, pad_token_id=0, **options,
    ))


def texts(count):
    draws = np.random.default_rng(1)
    return [" ".join(f"w{i}" for i in draws.integers(4, 64, 12)) for _ in range(count)]


def arguments(folder, kind=TrainingArguments, **options):
    return kind(folder, **{
        "max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 1e-3, "logging_steps": 1,
        "save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, **options,
    })


def history(name, trainer, within=5e-5):
    log = trainer.state.log_history
    tell(f"{name}: losses", [e["loss"] for e in log if "loss" in e], within)
    tell(f"{name}: norms", [e["grad_norm"] for e in log if "grad_norm" in e], 10 * within)


words = tokenizer()
model = gpt2().eval()
ids = torch.randint(4, 64, (2, 10))

# saved in shards, loaded in ways
model.save_pretrained("kept", max_shard_size="20KB")
tell("shards", sorted(os.listdir("kept")))
for name, options in {
    "plain": {}, "bfloat16": {"dtype": torch.bfloat16}, "float64": {"dtype": torch.float64},
    "auto": {"dtype": "auto", "device_map": "cpu"}, "eager": {"attn_implementation": "eager"},
    "sdpa": {"attn_implementation": "sdpa"},
}.items():
    loaded = AutoModelForCausalLM.from_pretrained("kept", **options).eval()
    with torch.no_grad():
        tell(f"{name}: logits", loaded(ids).logits[:, -1, :5], 3e-2 if name == "bfloat16" else 1e-5)
    tell(f"{name}: kind", [str(loaded.dtype), loaded.num_parameters(), loaded.lm_head.weight is loaded.transformer.wte.weight])
with torch.device("meta"):
    empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("kept"))
tell("on meta", str(empty.device))
loaded, info = AutoModelForCausalLM.from_pretrained("kept", output_loading_info=True)
tell("loading", {k: len(v) for k, v in info.items()})
result = model(ids, output_hidden_states=True, output_attentions=False, labels=ids)
tell("hidden", [h.norm() for h in result.hidden_states], 1e-5)
tell("loss", result.loss, 1e-5)
model.resize_token_embeddings(70)
tell("resized", [list(model.get_input_embeddings().weight.shape), model.config.vocab_size])

# masked words, a stream of examples, mixed lengths
data = Dataset.from_dict({"text": texts(40)}).map(
    lambda row: words(row["text"], truncation=True, max_length=10), remove_columns="text")
trainer = Trainer(
    gpt2(), arguments("causal"), DataCollatorForLanguageModeling(words, mlm=False), data, processing_class=words,
)
trainer.train()
history("causal", trainer)
trainer = Trainer(
    gpt2(), arguments("stream"), DataCollatorForLanguageModeling(words, mlm=False),
    data.to_iterable_dataset(num_shards=2).shuffle(seed=1, buffer_size=10), processing_class=words,
)
trainer.train()
history("stream", trainer)
set_seed(5)
masked = DataCollatorForLanguageModeling(words, mlm_probability=0.4)([data[i] for i in range(4)])
tell("masked", {key: value for key, value in masked.items()})
trainer = Trainer(
    gpt2(), arguments("two", optim="adamw_torch", gradient_accumulation_steps=3, torch_compile=on_graphc()),
    DataCollatorForLanguageModeling(words, mlm=False), data, processing_class=words,
)
trainer.train()
history("compiled by one side", trainer)

# from text to text
set_seed(0)
pair = T5ForConditionalGeneration(T5Config(
    vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0,
))
both = data.map(lambda row: {"labels": row["input_ids"][::-1][:6]})
trainer = Seq2SeqTrainer(
    pair, arguments("pair", Seq2SeqTrainingArguments, predict_with_generate=True, generation_max_length=8, per_device_eval_batch_size=4),
    DataCollatorForSeq2Seq(words, pair), both.select(range(32)), both.select(range(32, 40)), words,
    compute_metrics=lambda p: {"tokens": int(p.predictions.sum())},
)
trainer.train()
history("pair", trainer)
tell("pair: evaluated", trainer.evaluate()["eval_tokens"])

# pipelines
made = pipeline("text-generation", model=gpt2(), tokenizer=words, device="cpu")
set_seed(3)
tell("pipeline", made(["w5 w6", "w7"], max_new_tokens=5, do_sample=True, batch_size=2))
tell("features", np.array(pipeline("feature-extraction", model=gpt2(), tokenizer=words, device="cpu")("w5 w9")).shape)

# pictures and sound
set_seed(0)
seen = ViTForImageClassification(ViTConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8, num_labels=5,
))
pixels = torch.randn(3, 3, 32, 32)
found = seen(pixel_values=pixels, labels=torch.tensor([0, 3, 4]))
found.loss.backward()
tell("pictures: loss", found.loss, 1e-5)
tell("pictures: gradients", [p.grad.norm() for p in seen.parameters()], 1e-3)
heard = WhisperForConditionalGeneration(WhisperConfig(
    vocab_size=70, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=50, max_target_positions=24, num_mel_bins=10,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[],
)).eval()
sound = torch.randn(2, 10, 100)
tell("sound: loss", heard(input_features=sound, labels=torch.randint(3, 70, (2, 6))).loss, 1e-5)
tell("sound: words", heard.generate(sound, max_new_tokens=6, do_sample=False))

# how surprised a model is, in windows
set_seed(0)
llama = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
)).eval()
stream, total = torch.randint(0, 64, (1, 70)), []
for start in range(0, 70, 16):
    part = stream[:, max(0, start - 8):start + 16]
    labels = part.clone()
    labels[:, : max(0, part.shape[1] - 16)] = -100
    with torch.inference_mode():
        total.append(llama(part, labels=labels).loss)
tell("perplexity loss", torch.stack(total).mean().exp(), 1e-5)
llama.gradient_checkpointing_enable()
llama.train()
loss = llama(stream[:, :32], labels=stream[:, :32]).loss
loss.backward()
tell("checkpointed loss", loss, 1e-5)
tell("checkpointed gradients", [p.grad.norm() for p in llama.parameters()], 1e-3)
own("attention", llama.config._attn_implementation)
