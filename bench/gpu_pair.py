"""Makes the pair that GPUs are measured with: random weights, known behaviour (see make_pair.py).

    python gpu_pair.py OUT_DIR [--size 7b|1b|tiny] [--type bfloat16|float16|float32] [--device cuda|cpu]

The target has Llama's shape of 7B parameters, the draft about a tenth of them; alpha is that of make_pair.py. Needs
PyTorch and transformers. OUT_DIR gets hf/target and hf/draft, in the type, and pair.json; gpu.sh makes the ONNX folders
of them with `submit import`.
"""

import argparse
import json
import time
from pathlib import Path

import torch

import make_pair as pair


def shape(hidden, inner, layers, heads):
    return dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads)


SIZES = {
    "7b": (shape(4096, 11008, 32, 32), shape(2048, 5504, 12, 16)),
    "1b": (shape(2048, 5632, 22, 16), shape(768, 2048, 8, 6)),
    "tiny": (shape(256, 512, 4, 4), shape(64, 128, 2, 1)),
}


@torch.no_grad()
def settle(draft):
    """Undoes what the draft's layers add to its last norm, and leaves only the shared law in it."""
    draft.model.norm.weight.data.fill_(1)
    x = draft.model(torch.randint(1, pair.VOCAB, (8, 64))).last_hidden_state[:, 8:]
    pair.set_norm(draft, 1 / x[..., pair.SHARED - 1].mean().item(), 0)


def make(size, seed):
    torch.manual_seed(seed)
    target_shape, draft_shape = SIZES[size]
    hidden = target_shape["hidden_size"]
    rows, head = torch.randn(pair.VOCAB, hidden), torch.randn(pair.VOCAB, hidden)
    for w in rows, head:
        w[:, : pair.SHARED - 1] *= (pair.SHARED - 1) ** 0.5 / w[:, : pair.SHARED - 1].norm(dim=1, keepdim=True)
    rows[:, pair.SHARED - 1] = 1
    head[:, pair.SHARED - 1] = 0
    head[pair.EOS] = 0
    head[pair.EOS, pair.SHARED - 1] = -100
    target, draft = pair.empty(target_shape), pair.empty(draft_shape)
    pair.randomize(target, rows, head, 1.0)
    width = draft_shape["hidden_size"]
    pair.randomize(draft, rows[:, :width], head[:, :width], 0.01)
    settle(draft)
    pair.fit(target, draft)
    return target, draft


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=Path)
    ap.add_argument("--size", choices=SIZES, default="7b")
    ap.add_argument("--type", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    began = time.time()
    torch.set_default_device(a.device)
    target, draft = make(a.size, a.seed)
    target, draft = (m.to(getattr(torch, a.type)) for m in (target, draft))
    alpha, same, entropy = measured(target, draft)
    about = {
        "size": a.size, "type": a.type, "target_read": pair.read_per_token(target), "draft_read": pair.read_per_token(draft),
        "vocab": pair.VOCAB, "alpha": alpha, "argmax_equal": same, "entropy": entropy,
    }
    for name, model in ("target", target), ("draft", draft):
        hf = a.out / "hf" / name
        hf.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(hf)
        pair.save_tokenizer(hf)
    about["seconds"] = round(time.time() - began, 1)
    print(json.dumps(about))
    (a.out / "pair.json").write_text(json.dumps(about) + "\n")  # last: its presence says that all is there


@torch.no_grad()
def measured(target, draft):
    """As pair.overlap, with logits widened: the models stay in their type."""
    ids = pair.sample(target, 8, 136)
    q, p = (m(ids).logits[:, 8:].float().log_softmax(-1) for m in (target, draft))
    alpha = torch.minimum(p.exp(), q.exp()).sum(-1).mean().item()
    same = (p.argmax(-1) == q.argmax(-1)).float().mean().item()
    return alpha, same, -(q.exp() * q).sum(-1).mean().item()


if __name__ == "__main__":
    main()
