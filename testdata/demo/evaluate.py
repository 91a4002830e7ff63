"""Measures the exported pair: pass@1 of the target, alpha, and the time per forward of both.

    python evaluate.py DIR [--samples 4] [--out figures.json]

DIR has target/, draft/ and minieval.parquet. Text is drawn from the target at
temperature 0.8 with nothing truncated. alpha is the mean over the drawn tokens
of sum_x min(p(x), q(x)), both distributions taken at temperature 0.8.
Generated code runs in a child process with a time limit and nothing more: it is
meant for these two small models only.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pyarrow.parquet as pq
from tokenizers import Tokenizer

MAX_NEW = 128
SEED = 11
PRELUDE = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (5, 5))\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"


class Model:
    """A session with the caches of one sequence bound in place (past and present share a buffer)."""

    def __init__(self, folder, threads=2):
        cfg = json.loads((Path(folder) / "genai_config.json").read_text())["model"]["decoder"]
        self.layers, self.heads, self.size = cfg["num_hidden_layers"], cfg["num_key_value_heads"], cfg["head_size"]
        opts = ort.SessionOptions()
        opts.intra_op_num_threads = threads
        opts.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = ort.InferenceSession(str(Path(folder) / "model.onnx"), opts)
        self.reset()

    def reset(self, capacity=512):
        self.length = 0
        self.binding = self.session.io_binding()
        self.caches = []
        for i in range(self.layers):
            for part in ("key", "value"):
                c = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, self.heads, capacity, self.size), np.float32))
                self.binding.bind_ortvalue_input(f"past_key_values.{i}.{part}", c)
                self.binding.bind_ortvalue_output(f"present.{i}.{part}", c)
                self.caches.append(c)

    def forward(self, ids):
        """Appends the tokens and returns their logits, [S, V]."""
        b = self.binding
        b.bind_cpu_input("input_ids", np.array([ids], np.int64))
        b.bind_cpu_input("attention_mask", np.ones((1, self.length + len(ids)), np.int64))
        b.bind_output("logits")
        self.session.run_with_iobinding(b)
        self.length += len(ids)
        return b.get_outputs()[-1].numpy()[0]


def softmax(x, temperature=0.8):
    x = x.astype(np.float64) / temperature
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sample(target, prompt, rng):
    """One completion, its token ids with the end-of-sequence token, and q at each of them."""
    target.reset()
    q = softmax(target.forward(prompt)[-1])
    ids, qs = [], []
    while True:
        t = int(rng.choice(len(q), p=q))
        ids.append(t)
        qs.append(q)
        if t == 0 or len(ids) == MAX_NEW:
            return ids, np.array(qs)
        q = softmax(target.forward([t])[-1])


def passes(row, completion):
    for stop in ("\ndef ", "\nclass ", "\nif ", "\nprint"):
        completion = completion.split(stop)[0]
    code = PRELUDE + row["prompt"] + completion + row["test"] + f"\ncheck({row['entry_point']})\n"
    try:
        return subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def forward_time(model, tokens, runs=200):
    """Median milliseconds of one forward of so many tokens at a past of 128."""
    model.reset()
    model.forward([5] * 128)
    times = []
    for _ in range(runs):
        model.length = 128
        t = time.perf_counter()
        model.forward([7] * tokens)
        times.append(time.perf_counter() - t)
    return round(1000 * float(np.median(times)), 3)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("--samples", type=int, default=4)
    ap.add_argument("--out")
    ap.add_argument("--limit", type=int)
    a = ap.parse_args()
    folder = Path(a.dir)
    tok = Tokenizer.from_file(str(folder / "target/tokenizer.json"))
    target, draft = Model(folder / "target"), Model(folder / "draft")
    rows = pq.read_table(folder / "minieval.parquet").to_pylist()[: a.limit]
    rng = np.random.default_rng(SEED)
    passed, overlap, lengths, ended, failed = 0, [], [], 0, []
    for row in rows:
        prompt = tok.encode(row["prompt"]).ids
        good = 0
        for _ in range(a.samples):
            ids, q = sample(target, prompt, rng)
            draft.reset()
            p = softmax(draft.forward(prompt + ids[:-1])[len(prompt) - 1:])
            overlap.extend(np.minimum(p, q).sum(-1))
            ended += ids[-1] == 0
            lengths.append(len(ids))
            good += passes(row, tok.decode([t for t in ids if t != 0]))
        passed += good
        if good < a.samples:
            failed.append([row["task_id"], row["entry_point"], good])
    n = len(rows) * a.samples
    out = {
        "problems": len(rows), "samples": n, "pass@1": round(passed / n, 4), "alpha": round(float(np.mean(overlap)), 4),
        "mean_tokens": round(float(np.mean(lengths)), 1), "ended_by_eos": round(ended / n, 4),
        "ms_target_1": forward_time(target, 1), "ms_target_5": forward_time(target, 5), "ms_draft_1": forward_time(draft, 1),
    }
    out["c"] = round(out["ms_draft_1"] / out["ms_target_1"], 4)
    print(json.dumps(out, indent=2))
    print("not always passed:", failed, file=sys.stderr)
    if a.out:
        Path(a.out).write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
