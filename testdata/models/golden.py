"""Writes what transformers computes, in float32, for the Go tests to compare with.

    python golden.py CHECKPOINTS OUT_DIR

OUT_DIR/golden.json says which tokens; OUT_DIR/NAME.f32 holds the logits, little-endian
float32: [text, vocabulary] of the whole text in one forward without a cache, then
[branch, vocabulary] of the branch's tokens, which follow the first `at` of the text.

The same logits are computed through transformers' own cache, token by token, by
verifying K + 1 tokens at a time, and after taking wrong tokens back; how far these
are from the ones stored is printed and bounded.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

LENGTH, BRANCH_AT, BRANCH, K = 24, 14, 5, 4


def range_of(a, b):
    return float(np.abs(a - b).max() / (a.max() - a.min()))


@torch.no_grad()
def golden(folder, ids, branch):
    # In float64 first: what is stored is then the rounding of the true value.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    def whole(tokens, m=model):
        return m(torch.tensor([tokens]), use_cache=False).logits[0].numpy()

    want, other = whole(ids), whole(ids[:BRANCH_AT] + branch)[BRANCH_AT:]

    def feed(cache, past, tokens):
        positions = torch.arange(past, past + len(tokens))[None]
        return model(torch.tensor([tokens]), past_key_values=cache, position_ids=positions, use_cache=True).logits[0].numpy()

    off = {}
    cache = DynamicCache()
    off["token by token"] = range_of(want, np.concatenate([feed(cache, i, [t]) for i, t in enumerate(ids)]))
    # DynamicCache without a configuration keeps all positions, whatever the window, so that crop works.
    cache, got = DynamicCache(), []
    got.append(feed(cache, 0, ids[:BRANCH_AT]))
    off["branch"] = range_of(other, feed(cache, BRANCH_AT, branch))
    cache.crop(-BRANCH)
    at = BRANCH_AT
    while at < len(ids):
        got.append(feed(cache, at, ids[at:at + K + 1]))
        at += len(got[-1])
    off["verification after a rollback"] = range_of(want, np.concatenate(got))
    exact = model.to(torch.float64)
    off["float64"] = range_of(want, exact(torch.tensor([ids]), use_cache=False).logits[0].numpy())
    assert max(off.values()) < 2e-6, off
    return want, other, off


def main(checkpoints, out):
    out = Path(out)
    out.mkdir(exist_ok=True)
    rng = np.random.default_rng(11)
    index = {"at": BRANCH_AT, "k": K, "models": {}}
    index["text"] = rng.integers(1, 272, LENGTH).tolist()
    index["branch"] = rng.integers(1, 272, BRANCH).tolist()
    for folder in sorted(Path(checkpoints).iterdir()):
        want, other, off = golden(folder, index["text"], index["branch"])
        np.concatenate([want, other]).astype("<f4").tofile(out / f"{folder.name}.f32")
        margin = np.sort(want, -1)
        index["models"][folder.name] = {"vocab": want.shape[-1], "range": round(float(want.max() - want.min()), 3)}
        print(folder.name, f"range {want.max() - want.min():.1f}, least margin {(margin[:, -1] - margin[:, -2]).min() / (want.max() - want.min()):.2g} of it;",
              ", ".join(f"{k} {v:.1g}" for k, v in off.items()))
    (out / "golden.json").write_text(json.dumps(index) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
