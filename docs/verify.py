#!/usr/bin/env python3
"""Checks a draftmill job from its files alone: python3 verify.py DIR

Written from storage/FORMAT.md, independently of the Go code. Needs numpy and
pyarrow. Exit code 0: everything holds; 1: something does not, and the first
such thing is named; 2: bad usage.
"""
import hashlib
import json
import pathlib
import sys

import numpy as np
import pyarrow.parquet as pq

ACCEPT, BONUS, NOISE = 2, 4, 5  # purposes
SLACK = 1e-6  # what sums over a vocabulary may be off by


class Wrong(Exception):
    pass


def need(holds, *what):
    if not holds:
        raise Wrong(" ".join(map(str, what)))


# Philox4x32-10 over arrays of counters.


def philox(counter, key):
    low = np.uint64(0xFFFFFFFF)
    a, b, c, d = (np.asarray(x, np.uint64) for x in counter)
    k0, k1 = (np.asarray(x, np.uint64) for x in key)
    for _ in range(10):
        x, y = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (y >> np.uint64(32)) ^ b ^ k0, y & low, (x >> np.uint64(32)) ^ d ^ k1, x & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return a, b, c, d


def unit(low, high):
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sequence_block(seed, row, sample, position, purpose):
    counter = (position, sample << 8 | purpose, row & 0xFFFFFFFF, row >> 32)
    return philox(counter, (seed & 0xFFFFFFFF, seed >> 32))


def uniform(seed, row, sample, position, purpose):
    a, b, _, _ = sequence_block(seed, row, sample, position, purpose)
    return unit(a, b)


def exponential(u):
    return -np.log1p(-u)


def noise(seed, row, sample, position, token):
    base = sequence_block(seed, row, sample, position, NOISE)
    key, token = (base[0], base[1]), np.asarray(token, np.int64)
    group = token // 32
    a, b, c, _ = philox((base[2], base[3], group, 0), key)
    first = group * 32 + (c % np.uint64(32)).astype(np.int64)
    e = exponential(unit(a, b)) / 32
    a, b, _, _ = philox((base[2], base[3], token, 1), key)
    return np.where(token == first, e, e + exponential(unit(a, b)))


class Rule:
    """How a drafted token is accepted (FORMAT.md, "Rules")."""

    def __init__(self, spec):
        name, _, factor = spec.get("rule", "rejection").partition(":")
        self.factor = float(factor) if factor else 1.0
        self.greedy = spec["sampling"]["temperature"] == 0
        if name in ("lenient", "capped") and self.greedy:
            name = "lenient greedy" if name == "lenient" and self.factor < 1 else "rejection"
        if "sps" not in spec["modes"] and name != "coupled":
            name = "rejection"
        self.name = name

    def coin(self, spec, row, sample, position, token):
        at = (spec["seed"], row, sample, position)
        if self.name == "coupled":
            return noise(*at, token)
        return uniform(*at, BONUS if self.name == "match" else ACCEPT)

    def accepts(self, u, p, q, below):
        if self.name == "match":
            return below <= u < below + q
        if self.name in ("lenient", "capped"):
            return u * self.factor * p < q
        if self.name == "lenient greedy":
            return q >= self.factor
        return u * p < q  # rejection; coupled is not decided from the log


def check_manifest(root, job):
    """Digests, plan and names; returns the files by (table, mode, shard)."""
    plan = json.loads((root / "_plan.json").read_text())
    manifest = json.loads((root / "manifest.json").read_text())
    need((root / "_SUCCESS").exists(), "_SUCCESS is missing: the job is not complete")
    need(manifest["job"] == job["job"] == plan["job"] == root.name, "the job's name differs between its files")
    need(manifest["spec"] == job["spec"], "manifest.json: its specification is not that of job.json")
    need(manifest["plan"] == {k: plan[k] for k in ("shards", "rows", "modes")}, "manifest.json: its plan is not _plan.json")
    need(plan["modes"] == job["spec"]["modes"], "_plan.json: its modes are not the job's")
    need(plan["shards"] == -(-plan["rows"] // job["spec"]["shard_rows"]), "_plan.json: rows and shards do not fit")
    files = {}
    for f in manifest["files"]:
        name = f"{f['table']}/mode={f['mode']}/part-{f['shard']:05d}.parquet"
        need(f["path"] == name, name, "is listed as", f["path"])
        data = (root / name).read_bytes()
        need(len(data) == f["bytes"] and hashlib.sha256(data).hexdigest() == f["sha256"], name, "was changed")
        table = pq.read_table(root / name, partitioning=None)
        need(table.num_rows == f["rows"], name, "has", table.num_rows, "rows, not", f["rows"])
        files[f["table"], f["mode"], f["shard"]] = table
    keys = {(t, m, s) for t in ("completions", "loops") for m in plan["modes"] for s in range(plan["shards"])}
    need(files.keys() == keys, "manifest.json does not list every shard in every mode")
    there = {p.relative_to(root).as_posix() for t in ("completions", "loops") for p in root.glob(f"{t}/*/*.parquet")}
    need(there == {f["path"] for f in manifest["files"]}, "there are files that nothing lists")
    return plan, files


def check_coins(where, spec, rule, loops):
    """The coins of all loops of one file at once."""
    rows, samples, positions, tokens, logged, at = [], [], [], [], [], []
    for l in loops:
        for t, u in enumerate(l["coins"]):
            rows.append(l["row"]), samples.append(l["sample"]), positions.append(l["position"] + t)
            tokens.append(l["drafted"][t]), logged.append(u), at.append(l)
    if not rows:
        return
    rows, samples = np.array(rows, np.int64), np.array(samples, np.int64)
    want = rule.coin(spec, rows, samples, np.array(positions, np.int64), tokens)
    off = np.abs(np.array(logged) - want) > (1e-12 if rule.name == "coupled" else 0)
    for i in np.flatnonzero(off):
        raise Wrong(where(at[i]), "a coin is", logged[i], "and the seed gives", want[i])


def check_loop(where, spec, rule, mode, l):
    """Shapes, probabilities and decisions of one loop."""
    n, lists = len(l["drafted"]), ("p", "q", "overlap")
    need(all(len(l[x]) == n for x in lists), where, "p, q or overlap do not fit", n, "drafted tokens")
    need(len(l["below"]) == (n if rule.name == "match" else 0), where, "below has", len(l["below"]), "numbers")
    need(len(l["chance"]) == (n if rule.name == "coupled" else 0), where, "chance has", len(l["chance"]), "numbers")
    k = 0 if mode == "ars" else spec["k"]
    chosen = spec.get("lookahead") == "auto" and mode == "sps"
    need(n <= l["k"] and (0 <= l["k"] <= k if chosen else l["k"] == k), where, "k is", l["k"], "with", n, "drafted")
    for t in range(n):
        p, q, overlap = l["p"][t], l["q"][t], l["overlap"][t]
        need(0 < p <= 1 + SLACK and 0 <= q <= 1 + SLACK and 0 <= overlap <= 1, where, "p, q, overlap:", p, q, overlap)
        if rule.name == "coupled":
            need(0 <= l["chance"][t] <= min(1, q / p) + SLACK, where, "chance", l["chance"][t], "with p", p, "and q", q)
        if rule.name != "lenient greedy":
            need(min(p, q) - SLACK <= overlap <= 1 - abs(p - q) + SLACK, where, "overlap", overlap, "with", p, q)
            need(not rule.greedy or q in (0, 1), where, "q is", q, "at temperature 0")
    accepted = 0
    if rule.name == "coupled":
        accepted = l["accepted"]
        need(0 <= accepted <= n, where, accepted, "tokens are accepted of", n)
    else:
        while accepted < n:
            need(accepted < len(l["coins"]), where, "an examined token has no coin")
            below = l["below"][accepted] if l["below"] else 0
            if not rule.accepts(l["coins"][accepted], l["p"][accepted], l["q"][accepted], below):
                break
            accepted += 1
    need(l["accepted"] == accepted, where, l["accepted"], "tokens are accepted, the log decides", accepted)
    need(len(l["coins"]) == min(accepted + 1, n), where, len(l["coins"]), "coins")
    need(l["kind"] == ("bonus" if accepted == n else "recovered"), where, "kind is", l["kind"])
    need(l["token"] >= 0 and 1 <= l["emitted"] <= accepted + 1, where, "token", l["token"], "emitted", l["emitted"])
    if accepted < n and (rule.name in ("match", "coupled") or l["p"][accepted] > l["q"][accepted] + SLACK):
        need(l["token"] != l["drafted"][accepted], where, "the rejected token is recovered")
    known = rule.greedy or rule.name == "coupled"
    need(len(l["margins"]) == (accepted + 1 if known else 0), where, len(l["margins"]), "margins")
    need((l["margin"] == l["margins"][-1]) if known else l["margin"] is None, where, "margin is", l["margin"])


def check_completion(where, spec, c, loops):
    """The loops of a completion follow each other and add up to it."""
    tokens, sums = [], dict.fromkeys(("drafted", "accepted", "draft_ns", "score_ns", "sample_ns"), 0)
    for i, l in enumerate(loops):
        need(l["loop"] == i, where, "loop", i, "is missing")
        need(l["position"] == c["prompt_tokens"] + len(tokens), where, "loop", i, "begins at", l["position"])
        if l["drafted"]:
            need(len(tokens) + len(l["drafted"]) < spec["max_new_tokens"], where, "loop", i, "drafts too much")
        made = l["drafted"][: l["accepted"]] + [l["token"]]
        need(l["emitted"] == len(made) or i == len(loops) - 1, where, "loop", i, "was cut and is not the last")
        tokens += made[: l["emitted"]]
        for name in sums:
            sums[name] += len(l[name]) if name == "drafted" else l[name]
    need(tokens == c["tokens"], where, "its loops decided other tokens")
    need(c["completion_tokens"] == len(tokens) and c["loops"] == len(loops), where, "counts differ from its loops")
    for name, value in sums.items():
        need(c[name] == value, where, name, "is", c[name], "and its loops add up to", value)
    need(c["seed"] == spec["seed"] and len(tokens) <= spec["max_new_tokens"], where, "seed or length is not the job's")
    need((c["finish_reason"] == "error") == (c["error"] is not None), where, "error is", c["error"])
    need((c["finish_reason"] == "stop") == (c["stop_reason"] is not None), where, "stop_reason is", c["stop_reason"])
    need(c["stop_reason"] is None or c["stop_reason"] in spec.get("stop", []), where, "stopped by", c["stop_reason"])
    need(not any(s in c["completion"] for s in spec.get("stop", [])), where, "goes on behind a stop sequence")
    need(c["finish_reason"] in ("stop", "eos", "length", "error"), where, "ended by", c["finish_reason"])


def main(root):
    job = json.loads((root / "job.json").read_text())
    spec, n = job["spec"], 0
    need("beams" not in spec, "a beam search: bin/submit verify replays it, this program does not")
    rule = Rule(spec)
    plan, files = check_manifest(root, job)
    for mode in plan["modes"]:
        for shard in range(plan["shards"]):
            loops, here = {}, f"mode {mode} shard {shard}"
            rows = files["loops", mode, shard].to_pylist()
            label = lambda l: f"{here}: row {l['row']} sample {l['sample']} loop {l['loop']}:"
            check_coins(label, spec, rule, rows)
            for l in rows:
                check_loop(label(l), spec, rule, mode, l)
                loops.setdefault((l["row"], l["sample"]), []).append(l)
                n += 1
            first = shard * spec["shard_rows"]
            last = min(first + spec["shard_rows"], plan["rows"])
            missing = {(row, sample) for row in range(first, last) for sample in range(spec["samples"])}
            for c in files["completions", mode, shard].to_pylist():
                key, where = (c["row"], c["sample"]), f"{here}: row {c['row']} sample {c['sample']}:"
                need(key in missing, where, "it is there twice, or not of this shard")
                missing.remove(key)
                mine = sorted(loops.pop(key, []), key=lambda l: l["loop"])
                check_completion(where, spec, c, mine)
            need(not missing, here, "rows and samples are missing:", sorted(missing)[:3])
            need(not loops, here, "loops of no completion:", sorted(loops)[:3])
    print(f"{job['job']}: {n} loops by the rule {rule.name} hold, {len(files)} files, {plan['rows']} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        main(pathlib.Path(sys.argv[1]).resolve())
    except (Wrong, OSError, KeyError, ValueError) as e:
        print(f"does not hold: {e}", file=sys.stderr)
        sys.exit(1)
