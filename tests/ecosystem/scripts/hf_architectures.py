"""Small models of 13 architectures of transformers: results, generation, three steps."""

import warnings

import torch
from told import tell

warnings.filterwarnings("ignore")


def train(model, loss, count):
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for _ in range(count):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        found.append(value.item())
    return found


import transformers as T
def steps(m, **kw):
    m.train(); return train(m, lambda: m(**kw).loss, 3)
SMALL = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(5))
mask = torch.ones_like(ids); mask[1, :3] = 0
def causal(kind, cfg):
    def f():
        torch.manual_seed(0); m = kind(cfg); m.eval()
        return [m(input_ids=ids, attention_mask=mask).logits, m.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False), m.generate(ids, attention_mask=mask, max_new_tokens=5, num_beams=3, do_sample=False), (torch.manual_seed(1), m.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=True, top_k=10))[1], steps(m, input_ids=ids, attention_mask=mask, labels=ids)]
    return f
PARTS = {
 "gpt2": causal(T.GPT2LMHeadModel, T.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=1, eos_token_id=2, pad_token_id=0)),
 "llama": causal(T.LlamaForCausalLM, T.LlamaConfig(num_key_value_heads=2, **SMALL)),
 "qwen2": causal(T.Qwen2ForCausalLM, T.Qwen2Config(num_key_value_heads=2, **SMALL)),
 "qwen3": causal(T.Qwen3ForCausalLM, T.Qwen3Config(num_key_value_heads=2, head_dim=8, **SMALL)),
 "qwen3moe": causal(T.Qwen3MoeForCausalLM, T.Qwen3MoeConfig(num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, **SMALL)),
 "mistral": causal(T.MistralForCausalLM, T.MistralConfig(num_key_value_heads=2, sliding_window=4, **SMALL)),
 "gemma2": causal(T.Gemma2ForCausalLM, T.Gemma2Config(num_key_value_heads=2, head_dim=8, **SMALL)),
 "phi3": causal(T.Phi3ForCausalLM, T.Phi3Config(num_key_value_heads=2, **SMALL)),
}
def bert():
    torch.manual_seed(0); m = T.BertForSequenceClassification(T.BertConfig(**SMALL)).eval()
    return [m(ids, attention_mask=mask).logits, steps(m, input_ids=ids, labels=torch.tensor([0, 1]))]
def t5():
    torch.manual_seed(0); m = T.T5ForConditionalGeneration(T.T5Config(vocab_size=64, d_model=32, d_ff=48, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0)).eval()
    return [m(input_ids=ids, labels=ids).logits, m.generate(ids, max_new_tokens=6), steps(m, input_ids=ids, labels=ids)]
def vit():
    torch.manual_seed(0); m = T.ViTForImageClassification(T.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4, num_labels=3)).eval(); x = torch.randn(2, 3, 16, 16)
    return [m(x).logits, steps(m, pixel_values=x, labels=torch.tensor([0, 2]))]
def whisper():
    torch.manual_seed(0); m = T.WhisperForConditionalGeneration(T.WhisperConfig(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20, max_target_positions=20, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, suppress_tokens=None, begin_suppress_tokens=None)).eval(); x = torch.randn(2, 8, 40)
    return [m(x, decoder_input_ids=ids[:, :5]).logits, m.generate(x, max_new_tokens=6), steps(m, input_features=x, labels=ids)]
def clip():
    torch.manual_seed(0); s = {k: v for k, v in SMALL.items()}
    m = T.CLIPModel(T.CLIPConfig(text_config=dict(s, max_position_embeddings=16, projection_dim=16), vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4, projection_dim=16), projection_dim=16)).eval(); x = torch.randn(2, 3, 16, 16)
    o = m(input_ids=ids, pixel_values=x); return [o.logits_per_image, o.text_embeds, steps(m, input_ids=ids, pixel_values=x, return_loss=True)]
PARTS.update(bert=bert, t5=t5, vit=vit, whisper=whisper, clip=clip)
for name, part in PARTS.items():
    *results, losses = part()
    for k, value in enumerate(results):
        tell(f"{name}, {k}", value, 1e-5)
    tell(f"{name}, losses", losses, 1e-5)
