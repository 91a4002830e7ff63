"""Makes the tiny checkpoints of this folder and what transformers computes from them.

    python checkpoints.py OUT_DIR     (requirements.txt)

One random model of two layers for each architecture, in Hugging Face form, and in
OUT_DIR/golden/NAME.f32 its logits, little-endian float32: [text, vocabulary] of the
whole text in one forward, then [branch, vocabulary] of the branch's tokens, which
follow the first `at` of the text (golden.json).

Weights are multiples of 1/512 below 4, so that float16 holds them exactly.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB, CONTEXT, WINDOW = 272, 128, 12  # the window is shorter than the golden text
EOS = "<|endoftext|>"
LENGTH, AT, BRANCH, K = 24, 14, 5, 4
TEXT = ["the quick brown fox jumps over the lazy dog", "def the_answer(n):\n    return n + 42\n", "in the beginning there was the end"] * 4

COMMON = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
SHAPE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": CONTEXT, **COMMON,
}
WIDE = {**SHAPE, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # heads wider than the hidden size


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


MODELS = {
    "llama": ("llama", {**WIDE, "intermediate_size": 64, "tie_word_embeddings": False}),  # all rows are whole blocks of 32
    "llama3": ("llama", {**WIDE, "tie_word_embeddings": True, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)}),
    "llama-linear": ("llama", {**SHAPE, "tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True, **rope("linear", factor=4.0)}),
    "mistral": ("mistral", {**WIDE, "tie_word_embeddings": False, "sliding_window": WINDOW}),
    "qwen2": ("qwen2", {**SHAPE, "tie_word_embeddings": True}),
    "qwen2-yarn": ("qwen2", {**SHAPE, "tie_word_embeddings": False, **rope("yarn", factor=4.0, original_max_position_embeddings=32)}),
    "qwen3": ("qwen3", {**WIDE, "tie_word_embeddings": True}),
    "smollm3": ("smollm3", {**WIDE, "num_hidden_layers": 4, "tie_word_embeddings": True}),  # the fourth layer has no rotary embedding
    "phi3": ("phi3", {**SHAPE, "tie_word_embeddings": False, "sliding_window": WINDOW, "original_max_position_embeddings": 32,
                      "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0 + 0.1 * i for i in range(8)],
                                          "long_factor": [2.0] * 8, "original_max_position_embeddings": 32}}),
    "gemma2": ("gemma2", {**WIDE, "hidden_size": 36, "sliding_window": WINDOW, "query_pre_attn_scalar": 16,
                          "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "gpt2": ("gpt2", {"n_embd": 32, "n_head": 2, "n_layer": 2, "n_inner": 48, "n_positions": CONTEXT, **COMMON}),
}


def tokenizer(out):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[EOS], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    assert tok.get_vocab_size() == VOCAB
    tok.save(str(out / "tokenizer.json"))


def spread(model):
    """Random weights that make a lively model: attention that looks around, logits that differ."""
    for name, p in model.named_parameters():
        if p.ndim > 1:
            std = 0.7 if "embed" in name or "wte" in name else 0.1 if "wpe" in name else 1.2 * p.shape[-1] ** -0.5
            p.data = torch.randn_like(p) * std
        elif "norm" in name or "ln_" in name and name.endswith("weight"):
            p.data += 0.1 * torch.randn_like(p)
        else:
            p.data = 0.2 * torch.randn_like(p)
        p.data = ((p.data * 512).round() / 512).clamp(-3.99, 3.99)
    model.tie_weights()


@torch.no_grad()
def golden(model, ids, branch):
    def whole(tokens):
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()

    return np.concatenate([whole(ids), whole(ids[:AT] + branch)[AT:]]).astype("<f4")


def main(out):
    out = Path(out)
    (out / "golden").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    index = {"at": AT, "k": K, "vocab": VOCAB, "text": rng.integers(1, VOCAB, LENGTH).tolist(), "branch": rng.integers(1, VOCAB, BRANCH).tolist()}
    (out / "golden" / "golden.json").write_text(json.dumps(index) + "\n")
    for seed, (name, (kind, settings)) in enumerate(MODELS.items()):
        torch.manual_seed(2000 + seed)
        config = AutoConfig.for_model(kind, **settings)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(torch.float32).eval()
        spread(model)
        folder = out / name
        folder.mkdir(exist_ok=True)
        config.save_pretrained(folder)
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        tensors = {k: v.contiguous() for k, v in model.state_dict().items() if k not in tied}
        for k, v in tensors.items():
            assert torch.equal(v, v.to(torch.float16).to(torch.float32)), k
        tensors = {k: v.to(torch.float16) for k, v in tensors.items()}
        if name == "qwen3":  # in shards
            shards = [dict(list(tensors.items())[i::2]) for i in range(2)]
            where = {}
            for i, shard in enumerate(shards):
                file = f"model-{i + 1:05}-of-00002.safetensors"
                save_file(shard, folder / file, metadata={"format": "pt"})
                where |= {k: file for k in shard}
            (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=1) + "\n")
        elif name == "llama-linear":  # as bfloat16 where that is exact
            save_file({k: v.to(torch.bfloat16) if torch.equal(v, v.to(torch.bfloat16).to(torch.float16)) else v.to(torch.float32) for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
        else:
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        tokenizer(folder)
        logits = golden(model, index["text"], index["branch"])
        logits.tofile(out / "golden" / f"{name}.f32")
        print(name, sum(p.numel() for p in model.parameters()), "parameters, logits from", logits.min(), "to", logits.max())


if __name__ == "__main__":
    main(*sys.argv[1:])
