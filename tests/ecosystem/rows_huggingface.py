"""Hugging Face: transformers with its Trainer, datasets, accelerate, peft, safetensors, timm."""

from __future__ import annotations

from tests.ecosystem.matrix import Row

PACKAGES = (
    "transformers==5.23.0", "datasets==5.2.0", "accelerate==1.15.0", "peft==0.21.2",
    "safetensors==0.8.0",
)
TIMM = ("timm==1.0.29", "torchvision==0.28.0")

ROWS = [
    Row(
        "hf_trainer", PACKAGES, "Trainer at float32: train, evaluate, predict, callbacks, warm-up "
        "and decay, clipping, accumulation, best model, checkpoints; resumed at and within an "
        "epoch, and from the other side's checkpoint", stages=("fp32", "swap"),
    ),
    Row(
        "hf_trainer_bf16", PACKAGES, "Trainer with bf16=True: the same, resumed", "hf_trainer.py",
        ("bf16",),
    ),
    Row(
        "hf_trainer_compiled", PACKAGES, "Trainer with torch_compile=True: one graph, at float32 "
        "and bfloat16", "hf_trainer.py", ("compiled", "compiled_bf16"),
    ),
    Row(
        "hf_trainer_options", PACKAGES, "Trainer: gradient checkpointing, workers, grouped "
        "lengths, label smoothing, NEFTune, cosine, plateau, fused AdamW, Adafactor, SGD",
        "hf_trainer.py", ("options",),
    ),
    Row(
        "hf_generate", PACKAGES, "generate() of GPT-2, Llama, T5: greedy, sampled, beams, caches, "
        "assisted, processors, scores; a compiled forward",
    ),
    Row(
        "hf_more", PACKAGES, "shards, dtypes, device maps, attention kinds, masked words, streams, "
        "Seq2SeqTrainer, pipelines, ViT, Whisper, perplexity, checkpointing",
    ),
    Row(
        "hf_architectures", PACKAGES, "small GPT-2, Llama, Qwen2, Qwen3, its mixture of experts, "
        "Mistral, Gemma 2, Phi-3, BERT, T5, ViT, Whisper, CLIP: results, generation by search, "
        "beams and draws, three steps",
    ),
    Row(
        "hf_datasets", PACKAGES, 'with_format("torch"): rows, map, filter, shuffle, split, '
        "streams, loaders with workers, files",
    ),
    Row(
        "accelerate_loop", PACKAGES, "its own loop: accumulate, clip, gather, save_state and "
        "load_state (the other side's too), bf16, compiled, offloading, device maps, launcher",
        stages=("write", "swap", "bf16", "compiled", "helpers"),
        lacks="several processes",
    ),
    Row(
        "peft_lora", PACKAGES, "LoRA, rsLoRA, PiSSA, DoRA, AdaLoRA, IA3, prompts, prefixes of a "
        "GPT-2: trained, merged, saved, and loaded by the other side", stages=("write", "swap"),
    ),
    Row(
        "safetensors_files", PACKAGES, "files of 11 dtypes, byte for byte; slices, tied weights; "
        "the other side's files", stages=("write", "swap"), lacks="float8",
    ),
    Row(
        "timm_models", TIMM, "13 models: results, features, two steps, compiled; 10 optimizers, "
        "schedules, mixup, averages", limit=1800.0,
    ),
    Row(
        "sentence_vectors", (
            "sentence-transformers==6.2.0", "transformers==5.23.0", "datasets==5.2.0",
            "accelerate==1.15.0",
        ), "sentence-transformers: a tiny BERT and its own tokenizer; pooling, five losses "
        "trained, saved, compiled, searched, evaluated; a cross encoder",
    ),
    Row(
        "diffusion", ("diffusers==0.42.1", "accelerate==1.15.0"), "a UNet trained, averaged, "
        "saved; DDPM pipeline; four schedulers on the other side's weights; an autoencoder", "",
        ("write", "swap"),
    ),
    Row(
        "more_diffusion", (
            "diffusers==0.42.1", "accelerate==1.15.0", "transformers==5.23.0", "peft==0.21.2",
        ), "31 schedulers, ten more with other options; 15 transformers and UNets and 6 "
        "autoencoders in two steps each; a ControlNet; pipelines of words and pictures; tiles",
    ),
]
