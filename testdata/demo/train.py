"""Trains the demo's target, or distils its draft from the target, on a CPU.

    python train.py target --data DIR --out DIR --minutes 30
    python train.py draft --data DIR --out DIR --teacher TARGET_DIR --minutes 10

The schedule is a function of the share of the budget that is used (steps where
--steps is given, else minutes), so a run ends with its learning rate at zero.
A checkpoint is written every two minutes and picked up by the next run.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "target": dict(hidden_size=320, intermediate_size=896, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2),
    "draft": dict(hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
}
RATES = {"target": (0.01, 2e-3), "draft": (0.02, 4e-3)}  # Muon for the layers' matrices, AdamW for the rest
EOS_ID = 0
PROMPT_WEIGHT = 0.1  # of a prompt token in the loss; a body's token counts 1


def make_model(which, vocab):
    cfg = LlamaConfig(vocab_size=vocab, head_dim=32, max_position_embeddings=1024, rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
                      bos_token_id=EOS_ID, eos_token_id=EOS_ID, pad_token_id=None, initializer_range=0.02, **SHAPES[which])
    return LlamaForCausalLM(cfg)


def encode(path, tok):
    """Token ids of every problem, and the length of its prompt; kept beside the text."""
    cache = Path(path).with_suffix(".npz")
    if not cache.exists():
        rows = [json.loads(line) for line in open(path)]
        prompts = tok.encode_batch([p for p, _ in rows])
        bodies = tok.encode_batch([b for _, b in rows])
        docs = [p.ids + b.ids + [EOS_ID] for p, b in zip(prompts, bodies)]
        np.savez(cache, ids=np.concatenate([np.array(d, dtype=np.uint16) for d in docs]), length=[len(d) for d in docs], prompt=[len(p.ids) for p in prompts])
    z = np.load(cache)
    ids, ends = z["ids"].astype(np.int64), np.cumsum(z["length"])
    return [(ids[e - n:e], int(p)) for e, n, p in zip(ends, z["length"], z["prompt"])]


def batches(docs, seed, size, skip):
    """Endless batches of similar lengths; one document in ten has others in front of it, so that far positions are seen too."""
    epoch = step = 0
    while True:
        r = random.Random(f"{seed}/{size}/{epoch}")
        items = []
        for d in r.sample(docs, len(docs)):
            items.append([d] if not items or r.random() > 0.1 or len(items[-1]) > 2 else items.pop() + [d])
        out = []
        for lo in range(0, len(items), 1000):
            part = sorted(items[lo:lo + 1000], key=lambda it: sum(len(d[0]) for d in it))
            batch, longest = [], 0
            for it in part:
                n = sum(len(d[0]) for d in it)
                if batch and max(longest, n) * (len(batch) + 1) > size:
                    out.append(batch)
                    batch, longest = [], 0
                batch.append(it)
                longest = max(longest, n)
            out.append(batch)
        r.shuffle(out)
        for b in out:
            if step >= skip:
                yield pad(b)
            step += 1
        epoch += 1


def pad(batch):
    """ids [B, T] and weights [B, T]: the weight of predicting ids[b, t]."""
    width = max(sum(len(d[0]) for d in it) for it in batch)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    weight = np.zeros((len(batch), width), dtype=np.float32)
    for row, it in enumerate(batch):
        at = 0
        for d, prompt in it:
            ids[row, at:at + len(d)] = d
            weight[row, at:at + prompt] = PROMPT_WEIGHT
            weight[row, at + prompt:at + len(d)] = 1
            at += len(d)
    weight[:, 0] = 0
    return torch.from_numpy(ids), torch.from_numpy(weight)


def optimizers(which, model):
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon, adam = RATES[which]
    return [torch.optim.Muon(matrices, lr=muon, weight_decay=0.01, momentum=0.95, ns_steps=3), torch.optim.AdamW(rest, lr=adam, betas=(0.9, 0.98), weight_decay=0.0)]


def rate(share):
    """Warm-up over 2% of the budget, then a cosine to zero."""
    return min(1.0, share / 0.02 + 0.02) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def loss_of(logits, ids, weight, teacher):
    w = weight[:, 1:].reshape(-1)
    lp = F.log_softmax(logits[:, :-1].float(), -1).flatten(0, 1)
    hard = -(lp.gather(1, ids[:, 1:].reshape(-1, 1)).squeeze(1) * w).sum() / w.sum()
    body = w == 1
    shown = -(lp[body].gather(1, ids[:, 1:].reshape(-1, 1)[body])).mean().item()
    if teacher is None:
        return hard, shown
    q = F.softmax(teacher[:, :-1].float(), -1).flatten(0, 1)
    soft = -((q * lp).sum(1) * w).sum() / w.sum()
    return soft, shown


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("which", choices=SHAPES)
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--text", default="train.jsonl", help="the training text in the data folder")
    ap.add_argument("--batch", type=int, default=4096, help="tokens per step")
    ap.add_argument("--rate", type=float, default=1, help="factor on the learning rates")
    ap.add_argument("--init", help="a trained model to start from")
    ap.add_argument("--teacher")
    ap.add_argument("--minutes", type=float, default=30)
    ap.add_argument("--steps", type=int, help="end after this many steps instead of a time")
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(2)
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    tok = Tokenizer.from_file(str(Path(a.data) / "tokenizer.json"))
    docs = encode(Path(a.data) / a.text, tok)
    model = make_model(a.which, tok.get_vocab_size())
    if a.init:
        model.load_state_dict(LlamaForCausalLM.from_pretrained(a.init, dtype=torch.float32).state_dict())
    teacher = LlamaForCausalLM.from_pretrained(a.teacher, dtype=torch.float32).eval() if a.teacher else None
    opts = optimizers(a.which, model)
    base = [a.rate * o.param_groups[0]["lr"] for o in opts]
    step, spent, tokens = 0, 0.0, 0
    saved = out / "checkpoint.pt"
    if saved.exists():
        c = torch.load(saved)
        model.load_state_dict(c["model"])
        for o, s in zip(opts, c["opts"]):
            settings = [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups]
            o.load_state_dict(s)
            for g, kept in zip(o.param_groups, settings):
                g.update(kept)
        step, spent, tokens = c["step"], c["spent"], c["tokens"]
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(docs)} problems, {sum(len(d) for d, _ in docs)} tokens, from step {step}", flush=True)
    began, kept = time.time() - spent, time.time()
    mean = None
    for ids, weight in batches(docs, a.seed, a.batch, step):
        spent = time.time() - began
        share = step / a.steps if a.steps else spent / (60 * a.minutes)
        if share >= 1:
            break
        for o, lr in zip(opts, base):
            for g in o.param_groups:
                g["lr"] = lr * rate(share)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids, use_cache=False).logits
            with torch.no_grad():
                guide = teacher(ids, use_cache=False).logits if teacher else None
        loss, body = loss_of(logits, ids, weight, guide)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in opts:
            o.step()
            o.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + ids.numel()
        mean = body if mean is None else 0.95 * mean + 0.05 * body
        if step % 20 == 0:
            print(f"step {step} min {spent / 60:.2f} tokens {tokens} loss {loss.item():.4f} body {mean:.4f} tok/s {tokens / (time.time() - began):.0f}", flush=True)
        if time.time() - kept > 120:
            kept = time.time()
            torch.save(dict(model=model.state_dict(), opts=[o.state_dict() for o in opts], step=step, spent=spent, tokens=tokens), saved)
    model.save_pretrained(out)
    (out / "training.json").write_text(json.dumps(dict(steps=step, minutes=round(spent / 60, 1), tokens=tokens, body_loss=round(mean or 0, 4), seed=a.seed)) + "\n")
    print(f"done: step {step}, {tokens} tokens, body loss {mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
