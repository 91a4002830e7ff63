"""Trains the translation target, or distils its draft from the target, on a CPU.

    python train.py target --data DIR --out DIR --steps 1200
    python train.py draft --data DIR --out DIR --teacher TARGET_DIR --steps 1200
"""

import argparse
import json
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import T5Config, T5ForConditionalGeneration

SHAPES = {
    "target": dict(d_model=256, d_kv=64, d_ff=512, num_heads=4, num_layers=2, num_decoder_layers=7),
    "draft": dict(d_model=96, d_kv=24, d_ff=192, num_heads=4, num_layers=2, num_decoder_layers=1),
}
RATES = {"target": (0.01, 2e-3), "draft": (0.02, 4e-3)}  # Muon for the layers' matrices, AdamW for the rest
PAD, EOS = 0, 1


def make_model(which, vocab):
    cfg = T5Config(vocab_size=vocab, feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0, relative_attention_num_buckets=32,
                   relative_attention_max_distance=128, n_positions=256, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD, **SHAPES[which])
    # As in T5 v1.1 the logits are not scaled, and the head is one of its own. transformers 5 takes the first from
    # what it is given above, and would tie the head nevertheless.
    cfg.tie_word_embeddings = False
    model = T5ForConditionalGeneration(cfg)
    model.set_input_embeddings(model.shared)  # encoder and decoder have one
    with torch.no_grad():
        model.shared.weight.normal_(0, cfg.d_model ** -0.5)
        model.lm_head.weight.copy_(model.shared.weight)
    return model


def encode(path, tok):
    rows = [json.loads(line) for line in open(path)]
    sources, targets = (tok.encode_batch([r[i] for r in rows]) for i in (0, 1))
    return [(np.array(s.ids), np.array(t.ids)) for s, t in zip(sources, targets)]


def batches(pairs, seed, size):
    """Endless batches of sentences of similar lengths, of up to so many tokens."""
    for epoch in range(10**6):
        r = random.Random(f"{seed}/{epoch}")
        order = r.sample(pairs, len(pairs))
        out = []
        for lo in range(0, len(order), 2000):
            batch, longest = [], 0
            for p in sorted(order[lo:lo + 2000], key=lambda p: len(p[0]) + len(p[1])):
                n = max(len(p[0]), len(p[1]))
                if batch and max(longest, n) * (len(batch) + 1) > size:
                    out.append(batch)
                    batch, longest = [], 0
                batch.append(p)
                longest = max(longest, n)
            out.append(batch)
        r.shuffle(out)
        yield from map(pad, out)


def pad(batch):
    """Source ids and mask, and the ids to be predicted, -100 behind their end."""
    ids = torch.zeros(len(batch), max(len(s) for s, _ in batch), dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(batch), max(len(t) for _, t in batch)), -100)
    for i, (s, t) in enumerate(batch):
        ids[i, :len(s)], mask[i, :len(s)], labels[i, :len(t)] = torch.from_numpy(s), 1, torch.from_numpy(t)
    return ids, mask, labels


def optimizers(which, model, factor):
    """T5 does not divide attention's scores by the root of the head size: queries learn at so much smaller a rate."""
    muon, adam = (factor * r for r in RATES[which])
    queries, matrices, rest = [], [], []
    for name, p in model.named_parameters():
        if p.ndim == 2 and name.startswith(("encoder", "decoder")) and "relative" not in name and "embed" not in name:
            (queries if name.endswith(".q.weight") else matrices).append(p)
        else:
            rest.append(p)
    groups = [dict(params=queries, lr=muon * SHAPES[which]["d_kv"] ** -0.5), dict(params=matrices, lr=muon)]
    return [torch.optim.Muon(groups, weight_decay=0.01, momentum=0.95, ns_steps=3), torch.optim.AdamW(rest, lr=adam, betas=(0.9, 0.98), weight_decay=0.0)]


def rate(share):
    """Warm-up over 2% of the steps, then straight to zero."""
    return min(1.0, share / 0.02 + 0.02) * (1 - share)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("which", choices=SHAPES)
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--init", help="a trained model to start from")
    ap.add_argument("--rate", type=float, default=1, help="factor on the learning rates")
    ap.add_argument("--teacher")
    ap.add_argument("--batch", type=int, default=1536, help="tokens of one side per step")
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    tok = Tokenizer.from_file(str(Path(a.data) / "tokenizer.json"))
    pairs = encode(Path(a.data) / "train.jsonl", tok)
    model = make_model(a.which, tok.get_vocab_size())
    if a.init:
        model.load_state_dict(T5ForConditionalGeneration.from_pretrained(a.init, dtype=torch.float32).state_dict())
    teacher = T5ForConditionalGeneration.from_pretrained(a.teacher, dtype=torch.float32).eval() if a.teacher else None
    opts = optimizers(a.which, model, a.rate)
    base = [[g["lr"] for g in o.param_groups] for o in opts]
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(pairs)} sentences, {sum(len(t) for _, t in pairs)} tokens to predict", flush=True)
    step, seen, mean = 0, 0, None
    for ids, mask, labels in batches(pairs, a.seed, a.batch):
        share = step / a.steps
        if share >= 1:
            break
        for o, rates in zip(opts, base):
            for g, lr in zip(o.param_groups, rates):
                g["lr"] = lr * rate(share)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=ids, attention_mask=mask, labels=labels).logits
            with torch.no_grad():
                guide = teacher(input_ids=ids, attention_mask=mask, labels=labels).logits if teacher else None
        real = labels != -100
        lp = F.log_softmax(logits.float()[real], -1)
        hard = F.nll_loss(lp, labels[real])
        loss = hard if guide is None else -(F.softmax(guide.float()[real], -1) * lp).sum(-1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in opts:
            o.step()
            o.zero_grad(set_to_none=True)
        step, seen = step + 1, seen + int(real.sum())
        mean = hard.item() if mean is None else 0.95 * mean + 0.05 * hard.item()
        if step % 20 == 0:
            print(f"step {step} cpu {time.process_time():.0f} s tokens {seen} loss {mean:.4f} tok/s of cpu {seen / time.process_time():.0f}", flush=True)
    model.save_pretrained(a.out)
    (Path(a.out) / "training.json").write_text(json.dumps(dict(steps=step, minutes=round(time.process_time() / 60, 1), tokens=seen, loss=round(mean, 4), seed=a.seed)) + "\n")
    print(f"done: step {step}, {seen} tokens, loss {mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
