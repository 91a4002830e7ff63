"""Makes GGUF files of the checkpoints beside it, with the names, orders and metadata of llama.cpp's converter.

    python make_gguf.py DIR     (requirements.txt; DIR has the checkpoints and gets gguf/NAME.gguf)

The names come from the package gguf, which llama.cpp's convert_hf_to_gguf.py takes them from; what
that script does to some tensors is done here as it does it: queries and keys of Llama are permuted, Gemma's
norms get the one that they are relative to, GPT-2's matrices are turned, Llama 3's scaling becomes a tensor.
"""

import json
import math
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

ARCH = {
    "llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "phi3": gguf.MODEL_ARCH.PHI3, "gemma2": gguf.MODEL_ARCH.GEMMA2, "gpt2": gguf.MODEL_ARCH.GPT2,
}
# The checkpoint, and what matrices are quantized to where their rows allow it.
FILES = {
    "llama": ("llama", None), "llama3": ("llama3", None), "qwen2": ("qwen2", None), "qwen2-yarn": ("qwen2-yarn", None), "qwen3": ("qwen3", None),
    "smollm3": ("smollm3", None), "phi3": ("phi3", None), "llama-linear": ("llama-linear", None), "gemma2": ("gemma2", None), "gpt2": ("gpt2", None),
    "llama-q4_0": ("llama", "Q4_0"), "llama-q4_1": ("llama", "Q4_1"), "llama-q8_0": ("llama", "Q8_0"),
}


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tokenizer(out, folder):
    tok = json.loads((folder / "tokenizer.json").read_text())
    vocab = dict(tok["model"]["vocab"])
    special = {t["content"]: t["id"] for t in tok["added_tokens"]}
    tokens = [t for t, _ in sorted((vocab | special).items(), key=lambda kv: kv[1])]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
    out.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in tok["model"]["merges"]])
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    out.add_chat_template("{{ messages[0]['content'] }}")


def metadata(out, c):
    out.add_context_length(c.get("max_position_embeddings") or c["n_positions"])
    out.add_embedding_length(c.get("hidden_size") or c["n_embd"])
    out.add_block_count(c.get("num_hidden_layers") or c["n_layer"])
    out.add_feed_forward_length(c.get("intermediate_size") or c["n_inner"])
    out.add_head_count(c.get("num_attention_heads") or c["n_head"])
    if "n_head" not in c:
        out.add_head_count_kv(c["num_key_value_heads"])
        out.add_layer_norm_rms_eps(c["rms_norm_eps"])
        rope = c["rope_parameters"]
        out.add_rope_freq_base(rope["rope_theta"])
        if c.get("head_dim"):
            out.add_key_length(c["head_dim"])
            out.add_value_length(c["head_dim"])
        out.add_rope_dimension_count(c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])
        if rope["rope_type"] == "linear":
            out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            out.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            out.add_rope_scaling_factor(rope["factor"])
            out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    else:
        out.add_layer_norm_eps(c["layer_norm_epsilon"])
    if c["model_type"] == "gemma2":
        out.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        out.add_final_logit_softcapping(c["final_logit_softcapping"])
    if c["model_type"] in ("gemma2", "phi3"):
        out.add_sliding_window(c["sliding_window"])


def extras(c):
    """Rotary tables that the converter works out."""
    rope = c.get("rope_parameters", {})
    if rope.get("rope_type") == "llama3":
        size = c["head_dim"]
        freqs = 1.0 / (rope["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float32) / size))
        trained = rope["original_max_position_embeddings"]
        low, high = trained / rope["low_freq_factor"], trained / rope["high_freq_factor"]
        factors = []
        for f in freqs:
            wave = 2 * math.pi / f
            if wave < high:
                factors.append(1)
            elif wave > low:
                factors.append(rope["factor"])
            else:
                smooth = (trained / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
                factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
        yield "rope_freqs.weight", np.array(factors, dtype=np.float32)
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], dtype=np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], dtype=np.float32)


def convert(folder, path, quantization, **split):
    c = json.loads((folder / "config.json").read_text())
    kind = c["model_type"]
    out = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCH[kind]], **split)
    out.add_name(folder.name)
    out.add_license("apache-2.0")
    metadata(out, c)
    rope = c.get("rope_parameters", {})
    if rope.get("rope_type") == "longrope":
        scale = c["max_position_embeddings"] / c["original_max_position_embeddings"]
        out.add_rope_scaling_orig_ctx_len(c["original_max_position_embeddings"])
        out.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(c["original_max_position_embeddings"])))
    tokenizer(out, folder)
    names = gguf.get_tensor_name_map(ARCH[kind], c.get("num_hidden_layers") or c["n_layer"])
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    for name, t in tensors.items():
        if name.endswith((".attn.bias", ".attn.masked_bias")) or name == "lm_head.weight" and c.get("tie_word_embeddings", kind == "gpt2"):
            continue
        w = t.to(torch.float32).numpy()
        if kind in ("llama", "smollm3"):
            for projection, heads in (("q_proj", c["num_attention_heads"]), ("k_proj", c["num_key_value_heads"])):
                if f".{projection}." in name:
                    w = permute(w, heads)
        if kind == "gemma2" and name.endswith("norm.weight"):
            w = w + 1
        if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            w = w.T
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new, name
        if w.ndim == 1:
            out.add_tensor(new, np.ascontiguousarray(w, dtype=np.float32))
        elif quantization and w.shape[-1] % 32 == 0:
            q = gguf.GGMLQuantizationType[quantization]
            out.add_tensor(new, gguf.quants.quantize(np.ascontiguousarray(w), q), raw_dtype=q)
        else:
            out.add_tensor(new, np.ascontiguousarray(w, dtype=np.float16))
    for name, w in extras(c):
        out.add_tensor(name, w)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main(folder):
    folder = Path(folder)
    (folder / "gguf").mkdir(exist_ok=True)
    for name, (checkpoint, quantization) in FILES.items():
        convert(folder / checkpoint, folder / "gguf" / f"{name}.gguf", quantization)
    (folder / "gguf" / "parts").mkdir(exist_ok=True)
    for name, small in (("llama", False), ("metadata", True)):  # the first part with tensors, or without
        convert(folder / "llama", folder / "gguf" / "parts" / f"{name}.gguf", "Q4_0", split_max_tensors=8, small_first_shard=small)


if __name__ == "__main__":
    main(*sys.argv[1:])
