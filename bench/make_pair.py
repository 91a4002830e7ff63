"""Makes the pair of models that all systems are measured with: random weights, known behaviour.

    python make_pair.py OUT_DIR

The target has the shape of llama2.c's stories110M: 109.5M parameters are read per token. The draft reads a hundredth
of that. Both laws are known by construction. An embedding's first SHARED dimensions are the same in both models, and so
are the output layer's: they make one bigram law. The target adds what its other dimensions and its layers say, a
logit noise that the draft knows nothing of. How loud it is, the last norm's weights decide; they are chosen so that
alpha = E[sum_x min(p(x), q(x))] is ALPHA at temperature 1. The end-of-sequence token is never drawn.

OUT_DIR gets, each made from the same weights, for the target and the draft:

    hf/NAME           Hugging Face form, float32: transformers
    onnx/NAME-fp32    onnxruntime-genai's model builder: draftmill, onnxruntime-genai
    onnx/NAME-int4    the same with 4-bit weights (blocks of 32, accuracy_level 4)
    gguf/NAME-f32     llama.cpp
    gguf/NAME-q4_0    the same with 4-bit weights (blocks of 32)
    pair.json         sizes, the measured alpha, and a greedy continuation that everyone's must equal
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import peer

VOCAB, CONTEXT, EOS = peer.VOCAB, 1024, 0
SHARED = 32  # dimensions of the law that both know; the last of them is constant
SPREAD = 4.0  # standard deviation of the shared law's logits
ALPHA = 0.8
TARGET = dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12)
DRAFT = dict(hidden_size=SHARED, intermediate_size=96, num_hidden_layers=2, num_attention_heads=1)


def empty(shape):
    config = LlamaConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, num_key_value_heads=shape["num_attention_heads"],
        tie_word_embeddings=False, rms_norm_eps=1e-5, bos_token_id=EOS, eos_token_id=EOS, pad_token_id=EOS, **shape,
    )
    return LlamaForCausalLM(config).float().eval()


def randomize(model, rows, head, update):
    """Embeddings and output layer as given; layers that add `update` to the residual stream in all."""
    hidden, layers = model.config.hidden_size, model.config.num_hidden_layers
    model.model.embed_tokens.weight.data.copy_(rows)
    model.lm_head.weight.data.copy_(head)
    step = update / math.sqrt(2 * layers)
    for layer in model.model.layers:
        for name, w in layer.named_parameters():
            if w.dim() == 2:
                w.data.normal_(0, 1 / math.sqrt(w.shape[1]))
            if name.startswith(("self_attn.o_proj", "mlp.down_proj")):
                w.data.mul_(2 * step)
                if hidden > SHARED:
                    w.data[:SHARED].mul_(0.02)  # the shared law stays readable


def make_pair(seed):
    torch.manual_seed(seed)
    hidden = TARGET["hidden_size"]
    rows, head = torch.randn(VOCAB, hidden), torch.randn(VOCAB, hidden)
    for w in rows, head:  # rows of equal length: the norm means the same in both models, and no token is drawn from everywhere
        w[:, : SHARED - 1] *= math.sqrt(SHARED - 1) / w[:, : SHARED - 1].norm(dim=1, keepdim=True)
    rows[:, SHARED - 1] = 1
    head[:, SHARED - 1] = 0
    head[EOS] = 0
    head[EOS, SHARED - 1] = -100
    target, draft = empty(TARGET), empty(DRAFT)
    randomize(target, rows, head, 1.0)
    randomize(draft, rows[:, :SHARED], head[:, :SHARED], 0.01)
    set_norm(draft, 1, 0)
    return target, draft


def set_norm(model, scale, noise):
    """The last norm's weights: the shared law's logits spread by SPREAD, the other dimensions' by their share of noise."""
    w = model.model.norm.weight.data
    w[: SHARED - 1] = scale * SPREAD / math.sqrt(SHARED - 1)
    w[SHARED - 1] = scale
    w[SHARED:] = noise


@torch.no_grad()
def sample(model, count, length, temperature=1.0):
    """Sequences [count, length] drawn from the model after random first tokens."""
    ids = torch.randint(1, VOCAB, (count, 8))
    past, feed = None, ids
    while ids.shape[1] < length:
        out = model(feed, past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[:, -1]
        feed = torch.multinomial((logits / temperature).softmax(-1), 1) if temperature else logits.argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], 1)
    return ids


@torch.no_grad()
def overlap(target, draft, ids):
    """E[sum min(p, q)], the share of equal argmaxes, and the target's entropy in nats."""
    q, p = target(ids).logits[:, 8:].log_softmax(-1), draft(ids).logits[:, 8:].log_softmax(-1)
    alpha = torch.minimum(p.exp(), q.exp()).sum(-1).mean().item()
    same = (p.argmax(-1) == q.argmax(-1)).float().mean().item()
    return alpha, same, -(q.exp() * q).sum(-1).mean().item()


@torch.no_grad()
def fit(target, draft):
    """Finds the scale that undoes what the layers add to the norm, and the noise for ALPHA, on the target's own
    samples, which depend on them: twice."""
    scale, noise = 1.4, 0.01
    for _ in range(2):
        set_norm(target, scale, noise)
        ids = sample(target, 8, 72)
        p = draft(ids).logits[:, 8:].softmax(-1)
        target.model.norm.weight.data.fill_(1)
        x = target.model(ids).last_hidden_state[:, 8:]
        scale = 1 / x[..., SHARED - 1].mean().item()
        set_norm(target, scale, 1)
        x, head = x * target.model.norm.weight, target.lm_head.weight
        shared, rest = x[..., :SHARED] @ head[:, :SHARED].T, x[..., SHARED:] @ head[:, SHARED:].T
        low, high = 0.0, 0.1
        for _ in range(12):
            noise = (low + high) / 2
            if torch.minimum((shared + noise * rest).softmax(-1), p).sum(-1).mean() > ALPHA:
                low = noise
            else:
                high = noise
    set_norm(target, scale, noise)
    return noise


def save_tokenizer(out):
    """A byte-level BPE without merges: 256 bytes, the end, and names for the other tokens."""
    vocab = {"<|end|>": EOS}
    for c in sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()):
        vocab[c] = len(vocab)
    while len(vocab) < VOCAB:
        vocab[f"<t{len(vocab)}>"] = len(vocab)
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = tokenizers.decoders.ByteLevel()
    tok.add_special_tokens(["<|end|>"])
    PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<|end|>", eos_token="<|end|>", pad_token="<|end|>").save_pretrained(out)


def export_onnx(hf, out, precision):
    shutil.rmtree(out, ignore_errors=True)
    extra = ["--extra_options", "int4_accuracy_level=4"] if precision == "int4" else []
    with tempfile.TemporaryDirectory() as cache:
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", hf, "-o", out, "-p", precision, "-e", "cpu", "-c", cache, *extra], check=True)


def export_gguf(model, out, kind):
    """llama.cpp's names and its order of the rotary halves; no vocabulary, as everyone is fed ids."""
    import gguf  # here: gpu_pair.py does without it

    c = model.config
    heads, state = c.num_attention_heads, model.state_dict()
    w = gguf.GGUFWriter(out, "llama")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(heads)
    w.add_head_count_kv(heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("none")
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if kind == "f32" else gguf.LlamaFileType.MOSTLY_Q4_0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_hidden_layers)
    for name, tensor in state.items():
        a = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            a = a.reshape(heads, 2, c.head_dim // 2, -1).swapaxes(1, 2).reshape(a.shape)
        a = np.ascontiguousarray(a)
        to = names.get_name(name, try_suffixes=(".weight",))
        if a.ndim == 2 and kind == "q4_0":
            q = gguf.GGMLQuantizationType.Q4_0
            w.add_tensor(to, gguf.quants.quantize(a, q), raw_dtype=q)
        else:
            w.add_tensor(to, a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read_per_token(model):
    """Parameters that one token's run reads: all but the embedding's other rows."""
    return sum(p.numel() for p in model.parameters()) - model.model.embed_tokens.weight.numel() + model.config.hidden_size


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=Path)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    target, draft = make_pair(a.seed)
    noise = fit(target, draft)
    alpha, same, entropy = overlap(target, draft, sample(target, 8, 136))
    _, same_greedy, _ = overlap(target, draft, sample(target, 8, 136, 0))
    pair = {
        "target_read": read_per_token(target), "draft_read": read_per_token(draft), "vocab": VOCAB, "noise": noise,
        "alpha": alpha, "argmax_equal": same, "argmax_equal_greedy": same_greedy, "entropy": entropy,
    }
    print(json.dumps(pair))
    pair["greedy"] = target.generate(torch.tensor([peer.prompt(0)]), max_new_tokens=32, do_sample=False)[0, peer.PROMPT :].tolist()

    for folder in "hf", "onnx", "gguf":
        (a.out / folder).mkdir(parents=True, exist_ok=True)
    for name, model in ("target", target), ("draft", draft):
        hf = a.out / "hf" / name
        model.save_pretrained(hf)
        save_tokenizer(hf)
        for precision in "fp32", "int4":
            export_onnx(hf, a.out / "onnx" / f"{name}-{precision}", precision)
        for kind in "f32", "q4_0":
            export_gguf(model, a.out / "gguf" / f"{name}-{kind}.gguf", kind)
    (a.out / "pair.json").write_text(json.dumps(pair) + "\n")  # last: its presence says that all is there


if __name__ == "__main__":
    main()
