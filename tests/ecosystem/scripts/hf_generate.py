"""transformers' generate(): greedy, sampled, beams, caches, on tiny decoders and an encoder-decoder."""

import sys

import torch
from told import tell
from transformers import (
    GenerationConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
    LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList, T5Config,
    T5ForConditionalGeneration, set_seed,
)

assert sys.argv[1] == "run"


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
        eos_token_id=99, pad_token_id=98,
    ))


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=64, bos_token_id=0,
        eos_token_id=99, pad_token_id=98,
    ))


def t5():
    return T5ForConditionalGeneration(T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, pad_token_id=0,
        eos_token_id=1, decoder_start_token_id=0,
    ))


class NoEven(LogitsProcessor):
    def __call__(self, ids, scores):
        scores = scores.clone()
        scores[:, ::2] = -float("inf")
        return scores


class AfterFive(StoppingCriteria):
    def __call__(self, ids, scores, **kwargs):
        return torch.full((ids.shape[0],), ids.shape[1] >= 14, dtype=torch.bool)


WAYS = {
    "greedy": {"do_sample": False},
    "without a cache": {"do_sample": False, "use_cache": False},
    "repetition": {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "sampled": {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.7},
    "sampled widely": {"do_sample": True, "top_k": 0, "num_return_sequences": 3},
    "typical": {"do_sample": True, "typical_p": 0.8},
    "min_p": {"do_sample": True, "min_p": 0.05, "epsilon_cutoff": 1e-3},
    "beams": {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.8, "early_stopping": True},
    "beams, sampled": {"num_beams": 3, "do_sample": True},
    "at least": {"do_sample": False, "min_new_tokens": 6, "suppress_tokens": [5, 6, 7]},
    "static cache": {"do_sample": False, "cache_implementation": "static"},
    "guided": {"do_sample": False, "guidance_scale": 1.5},
}

for name, make in (("gpt2", gpt2), ("llama", llama), ("t5", t5)):
    set_seed(0)
    model = make().eval()
    ids = torch.randint(3, 90, (2, 9))
    mask = torch.ones_like(ids)
    if name != "t5":
        ids[1, :3], mask[1, :3] = model.config.pad_token_id, 0  # padded on the left
    given = {"attention_mask": mask, "max_new_tokens": 10}
    for way, options in WAYS.items():
        if name == "t5" and way in ("static cache", "guided"):
            continue
        set_seed(1)
        tell(f"{name}: {way}", model.generate(ids, **given, **options))
    set_seed(2)
    full = model.generate(
        ids, do_sample=True, output_scores=True, output_logits=True, return_dict_in_generate=True, **given
    )
    tell(f"{name}: tokens", full.sequences)
    tell(f"{name}: scores", [torch.where(s.isinf(), 0, s)[:, :5] for s in full.scores], 1e-5)
    tell(f"{name}: logits", [s.norm() for s in full.logits], 1e-5)
    shares = model.compute_transition_scores(full.sequences, full.scores, normalize_logits=True)
    tell(f"{name}: shares", shares, 1e-5)
    stopped = model.generate(
        ids, do_sample=False, logits_processor=LogitsProcessorList([NoEven()]),
        stopping_criteria=StoppingCriteriaList([AfterFive()]), **given,
    )
    tell(f"{name}: processed, stopped", stopped)
    config = GenerationConfig(max_new_tokens=4, do_sample=False, pad_token_id=0)
    tell(f"{name}: configured", model.generate(ids, attention_mask=mask, generation_config=config))
    if name == "t5":
        continue
    # by hand, with the cache
    ids = ids[:1]
    result = model(ids, use_cache=True)
    cache, tokens = result.past_key_values, []
    for _ in range(6):
        token = result.logits[:, -1].argmax(-1, keepdim=True)
        tokens.append(token.item())
        with torch.no_grad():
            result = model(token, past_key_values=cache, use_cache=True)
    tell(f"{name}: by hand", [tokens, cache.get_seq_length()])
    tell(f"{name}: the cache", [cache.layers[0].keys.norm(), cache.layers[1].values.norm()], 1e-5)
    # a draft proposes, the model accepts
    set_seed(3)
    draft = make().eval()
    tell(f"{name}: assisted", model.generate(ids, assistant_model=draft, do_sample=False, max_new_tokens=8))
    # as a compiled model
    before = model.generate(ids, do_sample=False, max_new_tokens=8)
    model.forward = torch.compile(model.forward, **({} if "graphc" in torch.__version__ else {"backend": "eager"}))
    after = model.generate(ids, do_sample=False, max_new_tokens=8)
    tell(f"{name}: compiled", [torch.equal(before, after), after])
