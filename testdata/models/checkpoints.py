"""Makes the checkpoints that all exports come from, one random model of two layers for each architecture.

    python checkpoints.py OUT_DIR

Written with the older transformers (requirements-optimum.txt): the newer ones
read its configurations, but not the other way round. Each folder of OUT_DIR is a
model in Hugging Face form, the byte-level tokenizer beside it.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

EOS = "<|endoftext|>"
VOCAB = 272  # the end of text, 256 bytes, 15 merges
CONTEXT = 128
LONG = 32  # tokens from which on Phi-3 takes its texts for long
WINDOW = 12  # of Gemma 2: shorter than the golden text

TEXT = ["the quick brown fox jumps over the lazy dog", "def the_answer(n):\n    return n + 42\n", "in the beginning there was the end"] * 4

COMMON = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
SHAPE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": CONTEXT,
}
WIDE = {**SHAPE, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # heads wider than the hidden size

MODELS = {
    # learned positions, biases, one tensor for queries, keys and values, tied embeddings
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_embd=32, n_head=2, n_layer=2, n_inner=48, n_positions=CONTEXT, **COMMON)),
    "llama": (LlamaForCausalLM, LlamaConfig(**WIDE, **COMMON, tie_word_embeddings=False)),
    # biases of queries, keys and values, tied embeddings, another rotary base
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE, **COMMON, tie_word_embeddings=True, rope_theta=1e6)),
    # normalized queries and keys
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**WIDE, **COMMON, tie_word_embeddings=True, rope_theta=1e6)),
    # packed projections, a window behind the end of the context, other rotary tables for long texts
    "phi3": (Phi3ForCausalLM, Phi3Config(
        **SHAPE, **COMMON, tie_word_embeddings=False, sliding_window=2 * CONTEXT, original_max_position_embeddings=LONG,
        rope_scaling={"type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [2.0] * 8})),
    # a window in the first layer and none in the second, capped attention and logits, scaled and tied
    # embeddings; Optimum gives it no position_ids, the builder rounds the embeddings' scale, the root of
    # the hidden size, to two digits
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(**{**WIDE, "hidden_size": 36}, **COMMON, sliding_window=WINDOW, query_pre_attn_scalar=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)),
}


def tokenizer(out):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[EOS], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    assert tok.get_vocab_size() == VOCAB, tok.get_vocab_size()
    tok.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "bos_token": EOS, "pad_token": EOS,
        "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT}, indent=2) + "\n")


def spread(model):
    """Random weights that make a lively model: attention that looks around, logits that differ.

    They are rounded to multiples of 1/512, so that the files compress."""
    for name, p in model.named_parameters():
        if p.ndim > 1:
            embedding = "embed" in name or "wte" in name
            std = 1.0 if embedding else 0.1 if "wpe" in name else 1.5 * p.shape[-1] ** -0.5
            p.data = torch.randn_like(p) * std
        elif "norm" in name or "ln_" in name and name.endswith("weight"):
            p.data += 0.1 * torch.randn_like(p)
        else:
            p.data = 0.2 * torch.randn_like(p)
        p.data = (p.data * 512).round() / 512
    model.tie_weights()


def main(out):
    for seed, (name, (cls, config)) in enumerate(MODELS.items()):
        torch.manual_seed(1000 + seed)
        model = cls(config).to(torch.float32).eval()
        spread(model)
        folder = Path(out) / name
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        tokenizer(folder)
        print(name, sum(p.numel() for p in model.parameters()), "parameters")


if __name__ == "__main__":
    main(*sys.argv[1:])
