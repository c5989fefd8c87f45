"""Small models of packages: `MODELS[package][name]()` gives a model and makes its arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Built = tuple[Any, Callable[[], dict[str, Any]]]
_WORDS = 64  # of every vocabulary


def _images(model: Any, name: str = "x", size: int = 64) -> Built:
    return model, lambda: {name: torch.randn(2, 3, size, size)}


def _tokens(model: Any, name: str = "x") -> Built:
    return model, lambda: {name: torch.randint(3, 20, (2, 8))}


def _timm(name: str, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        timm = importlib.import_module("timm")
        return _images(timm.create_model(name, pretrained=False, num_classes=10, **options))

    return build


def _transformers(name: str, kind: str, labels: bool, **options: Any) -> Callable[[], Built]:
    given = {
        "vocab_size": _WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 64, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, **options,
    }

    def build() -> Built:
        package = importlib.import_module("transformers")
        config = getattr(package, f"{name}Config")(**given)
        model = getattr(package, f"{name}{kind}")(config)

        def arguments() -> dict[str, Any]:
            ids = torch.randint(3, _WORDS, (2, 9))
            mask = torch.ones_like(ids)
            mask[1, 6:] = 0
            return {"input_ids": ids, "attention_mask": mask, **({"labels": ids} if labels else {})}

        return model, arguments

    return build


def _encoder(name: str, **options: Any) -> Callable[[], Built]:
    return _transformers(name, "Model", False, **options)


def _decoder(name: str, **options: Any) -> Callable[[], Built]:
    return _transformers(name, "ForCausalLM", True, **{"num_key_value_heads": 1, **options})


def _pair(name: str, **options: Any) -> Callable[[], Built]:
    """An encoder and a decoder; their configurations are copied inside the forward."""
    sizes = {
        f"{part}_{key}": value for part in ("encoder", "decoder") for key, value in {
            "layers": 1, "attention_heads": 2, "ffn_dim": 32, "layerdrop": 0.0,
        }.items()
    }
    given = {"d_model": 16, "decoder_start_token_id": 1, **sizes, **options}
    return _transformers(name, "ForConditionalGeneration", True, **given)


def _vision(name: str, **options: Any) -> Callable[[], Built]:
    given = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "image_size": 32, "patch_size": 8, **options,
    }

    def build() -> Built:
        package = importlib.import_module("transformers")
        config = getattr(package, f"{name}Config")(**given)
        return _images(getattr(package, f"{name}Model")(config), "pixel_values", 32)

    return build


def _vit_pytorch(module: str, kind: str, **options: Any) -> Callable[[], Built]:
    given = {
        "image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 16, "depth": 2, "heads": 2,
        "mlp_dim": 32, **options,
    }

    def build() -> Built:
        found = importlib.import_module(f"vit_pytorch.{module}")
        return _images(getattr(found, kind)(**given), "img", 32)

    return build


def _x_transformers(**options: Any) -> Callable[[], Built]:
    def build() -> Built:
        package = importlib.import_module("x_transformers")
        layers = package.Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, **options)
        wrapper = package.TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)
        return _tokens(wrapper)

    return build


def _einops() -> Built:
    package = importlib.import_module("einops")
    layers = importlib.import_module("einops.layers.torch")

    class Patches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut = layers.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8)
            self.mix = torch.nn.Linear(192, 8)

        def forward(self, x: Any) -> Any:
            y = package.reduce(self.mix(self.cut(x)), "b n d -> b d", "mean")
            return y * package.einsum(y, y, "b d, b d -> b")[:, None]

    return _images(Patches(), size=32)


MODELS: dict[str, dict[str, Callable[[], Built]]] = {
    "timm": {
        name: _timm(name, **options) for name, options in {
            "test_resnet": {}, "test_vit": {"img_size": 64}, "test_vit2": {"img_size": 64},
            "test_convnext": {}, "test_efficientnet": {}, "test_byobnet": {}, "test_nfnet": {},
            "mobilenetv3_small_050": {}, "convnext_atto": {}, "ghostnet_050": {},
            "xcit_nano_12_p16_224": {"img_size": 64, "depth": 2},
            "cait_xxs24_224": {"img_size": 64, "depth": 2},
        }.items()
    },
    "transformers": {
        "bert": _encoder("Bert"), "roberta": _encoder("Roberta"), "mpnet": _encoder("MPNet"),
        "albert": _encoder("Albert", embedding_size=8),
        "electra": _encoder("Electra", embedding_size=16),
        "deberta_v2": _encoder("DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"]),
        "modernbert": _encoder("ModernBert", global_attn_every_n_layers=2, local_attention=4),
        "deberta": _encoder("Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
        "t5": _pair("T5", d_kv=8, d_ff=32, num_layers=1, num_heads=2),
        "m2m_100": _pair("M2M100"), "bart": _pair("Bart"),
        "fnet": _encoder("FNet"), "squeezebert": _encoder("SqueezeBert", embedding_size=16),
        "gpt2": _transformers("GPT2", "LMHeadModel", True, n_embd=16, n_layer=2, n_head=2),
        "gpt_neox": _decoder("GPTNeoX"), "opt": _decoder("OPT", word_embed_proj_dim=16),
        "llama": _decoder("Llama"), "mistral": _decoder("Mistral"),
        "qwen2": _decoder("Qwen2"), "qwen3": _decoder("Qwen3", head_dim=8),
        "gemma": _decoder("Gemma", head_dim=8), "gemma2": _decoder("Gemma2", head_dim=8),
        "phi": _decoder("Phi"), "phi3": _decoder("Phi3"), "falcon": _decoder("Falcon"),
        "stablelm": _decoder("StableLm"), "olmo2": _decoder("Olmo2"), "cohere": _decoder("Cohere"),
        "granite": _decoder("Granite"), "mamba": _decoder("Mamba", state_size=4),
        "vit": _vision("ViT"), "deit": _vision("DeiT"), "beit": _vision("Beit"),
        "dinov2": _vision("Dinov2"),
    },
    "vit_pytorch": {
        "vit": _vit_pytorch("vit", "ViT"), "simple_vit": _vit_pytorch("simple_vit", "SimpleViT"),
        "deepvit": _vit_pytorch("deepvit", "DeepViT"),
        "patch_dropout": _vit_pytorch("vit_with_patch_dropout", "ViT", patch_dropout=0.25),
    },
    "x_transformers": {
        "decoder": _x_transformers(), "alibi": _x_transformers(alibi_pos_bias=True),
        "relative": _x_transformers(rel_pos_bias=True),
    },
    "einops": {"patches": _einops},
}
