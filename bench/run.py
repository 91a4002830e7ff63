"""Measures draftmill and its peers in turns and prints the table of docs/benchmarks.md.

Every round asks every system for everything once, in an order that changes from round to round. A ratio is formed
within a round, of things measured minutes apart at most, and quoted as the median over the rounds.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What one round asks for: system, request, and how it is called below.
ROUND = [
    ("memory", "read", "bandwidth"),
    ("draftmill", "pass target-fp32 1 1", "t1"),
    ("draftmill", "pass target-fp32 1 5", "t5"),
    ("draftmill", "pass draft-fp32 1 1", "d1"),
    ("llama.cpp", "pass target-fp32 1 1", "llama t1"),
    ("llama.cpp", "pass target-fp32 1 5", "llama t5"),
    ("draftmill", "decode fp32 0 1 sample 2", "ars"),
    ("llama.cpp", "decode fp32 0 1 sample 2", "llama ars"),
    ("draftmill", "decode int4 0 1 sample 2", "ars int4"),
    ("llama.cpp", "decode int4 0 1 sample 2", "llama ars int4"),
    ("draftmill", "decode fp32 0 2 sample 2", "ars 2"),
    ("llama.cpp", "decode fp32 0 2 sample 2", "llama ars 2"),
    ("draftmill", "decode fp32 0 4 sample 2", "ars 4"),
    ("llama.cpp", "decode fp32 0 4 sample 2", "llama ars 4"),
    ("draftmill", "decode fp32 0 8 sample 2", "ars 8"),
    ("llama.cpp", "decode fp32 0 8 sample 2", "llama ars 8"),
    ("draftmill", "decode fp32 4 4 sample 3", "sps 4"),
    ("draftmill", "decode fp32 4 1 sample 3", "sps sample"),
    ("draftmill", "decode fp32 4 1 top50 3", "sps top50"),
    ("draftmill", "decode fp32 4 1 greedy 2", "sps greedy"),
    ("onnxruntime-genai", "decode fp32 4 1 sample 2", "genai sample"),
    ("onnxruntime-genai", "decode fp32 4 1 top50 2", "genai top50"),
    ("onnxruntime-genai", "decode fp32 4 1 greedy 2", "genai greedy"),
    ("transformers", "decode fp32 4 1 sample 2", "transformers sample"),
    ("transformers", "decode fp32 4 1 top50 2", "transformers top50"),
    ("transformers", "decode fp32 4 1 greedy 2", "transformers greedy"),
    ("draftmill", "prefill fp32 1", "prefill 1"),
    ("draftmill", "prefill fp32 16", "prefill 16"),
]
GRID_LANES, GRID_K = (1, 2, 4, 8, 16), (0, 1, 2, 3, 4, 5, 6, 8)
BEGIN, END = "<!-- peers -->", "<!-- end of peers -->"
MINUTES = 12  # see --minutes
ROUNDS, RETRIES = 0.6, 0.8  # shares of it after which no round is begun, and no disturbed answer is asked for again
AUTO = "decode fp32 auto auto:16 sample 5"


TICK = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU time that was spent on this machine, or taken from it."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def own_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def spent():
    """The share of --minutes that has passed."""
    return (time.monotonic() - BEGAN) / 60 / MINUTES


class System:
    """A process that answers requests line by line."""

    def __init__(self, name, command, environment=None):
        self.name = name
        env = {**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1", **(environment or {})}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, request):
        """The answer, and as "others" the CPUs that everything else on the machine kept busy meanwhile."""
        began, busy, own = time.monotonic(), busy_seconds(), own_seconds(self.process.pid)
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"run: {self.name} ended at {request!r}: see its message above")
        others = (busy_seconds() - busy) - (own_seconds(self.process.pid) - own)
        return {**json.loads(line), "others": round(max(0, others) / (time.monotonic() - began), 3)}

    def ask_quietly(self, request, limit, tries):
        """The least disturbed answer of a few, the first that is disturbed by at most limit."""
        answers = []
        while len(answers) < tries:
            answers.append(self.ask(request))
            if answers[-1]["others"] <= limit or spent() > RETRIES:
                break
        return min(answers, key=lambda a: a["others"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def start(a):
    py, pair = a.python, str(a.pair)
    systems = {
        "memory": System("memory", [str(a.bin / "bandwidth"), "2"]),
        "draftmill": System("draftmill", [str(a.bin / "ours"), "-pair", pair, *(["-session", a.session] if a.session else [])]),
        "llama.cpp": System("llama.cpp", [py, str(HERE / "peer_llamacpp.py"), pair]),
        "onnxruntime-genai": System("onnxruntime-genai", [py, str(HERE / "peer_genai.py"), pair]),
        "transformers": System("transformers", [py, str(HERE / "peer_transformers.py"), pair]),
    }
    return systems


def check(systems, pair):
    """All systems continue a prompt with the same tokens: they run the same model."""
    versions = []
    for name, system in systems.items():
        if name == "memory":
            continue
        versions.append(system.ask("info"))
        got = system.ask("greedy fp32")["tokens"]
        same = next((i for i, (x, y) in enumerate(zip(got, pair["greedy"])) if x != y), len(got))
        print(f"{name}: {same} of {len(pair['greedy'])} greedy tokens as in pair.json", file=sys.stderr)
        if same < 8:
            raise SystemExit(f"run: {name} does not compute what the pair computes")
    return versions


def measure(systems, rounds, quiet, log):
    results = {name: [] for _, _, name in ROUND}
    for r in range(rounds):
        if r > 0 and spent() > ROUNDS:
            print(f"time for {r} rounds only", file=sys.stderr)
            break
        for i in range(len(ROUND)):
            system, request, name = ROUND[(i + r * 5) % len(ROUND)]
            answer = systems[system].ask_quietly(request, quiet, 3)
            results[name].append(answer)
            log.write(json.dumps({"round": r, "system": system, "request": request, **answer}) + "\n")
            log.flush()
        print(f"round {r + 1} of {rounds} after {time.monotonic() - BEGAN:.0f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return results


def grid(ours, quiet, log):
    """Tokens per second of every number of lanes and lookahead, and of what auto makes of them, in turns."""
    cells, auto = [], []
    for i, lanes in enumerate(GRID_LANES):
        auto.append(ours.ask_quietly(AUTO, quiet, 2))
        log.write(json.dumps({"request": AUTO, **auto[-1]}) + "\n")
        for k in GRID_K:
            request = f"decode fp32 {k} {lanes} sample 2"
            answer = ours.ask_quietly(request, quiet, 2)
            cells.append((lanes, k, answer))
            log.write(json.dumps({"request": request, **answer}) + "\n")
            log.flush()
        print(f"grid of {lanes} lanes after {time.monotonic() - BEGAN:.0f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    auto.append(ours.ask_quietly(AUTO, quiet, 2))
    return cells, auto


def print_machine(versions):
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    caches = [f"L{(d / 'level').read_text().strip()} {(d / 'size').read_text().strip()}" for d in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"{time.strftime('%Y-%m-%d')}: {os.cpu_count()} CPUs ({cpu}, {', '.join(caches)}), {memory:.0f} GiB, Linux {os.uname().release}\n")
    for v in versions:
        print("- " + ", ".join(f"{key} {value}" for key, value in v.items() if key not in ("system", "others") and value))
    print()


def tokens_per_loop(alpha, k):
    return k + 1 if alpha >= 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def table(results, cells, auto, pair):
    """Prints each measure of the issue beside its mark."""
    def median(f):
        n = min(len(v) for v in results.values())
        return statistics.median(f({k: v[i] for k, v in results.items()}) for i in range(n))

    def rate(name):
        return median(lambda r: r[name]["tokens_per_s"])

    def over(x, y):
        return median(lambda r: r[x]["tokens_per_s"] / r[y]["tokens_per_s"])

    size = 4 * pair["target_read"]
    floor = median(lambda r: size / r["bandwidth"]["best"] * 1000)
    rows = [
        ("ArS, one lane, fp32: ms per token over the floor", median(lambda r: r["ars"]["loop_ms"] / (size / r["bandwidth"]["best"] * 1000)), "<=", 1.10),
        ("ArS, one lane, fp32: tokens/s over llama.cpp's", over("ars", "llama ars"), ">=", 1.10),
        ("ArS, one lane, int4: tokens/s over llama.cpp's (Q4_0)", over("ars int4", "llama ars int4"), ">=", 1.05),
        ("scoring 5 tokens over scoring 1, fp32, one lane", median(lambda r: r["t5"]["ms"] / r["t1"]["ms"]), "<=", 1.10),
        ("ArS, 8 lanes, fp32: tokens/s over llama.cpp's batch of 8", over("ars 8", "llama ars 8"), ">=", 1.8),
        ("SpS loop over K t_draft + t_score(K+1), K = 4", median(lambda r: r["sps sample"]["loop_ms"] / (4 * r["d1"]["ms"] + r["t5"]["ms"])), "<=", 1.05),
    ]
    for peer, mark in ("genai", 1.2), ("transformers", 1.5):
        for how in "greedy", "top50", "sample":
            rows.append((f"SpS, one lane, {how}: tokens/s over {peer}'s", over(f"sps {how}", f"{peer} {how}"), ">=", mark))
    def pooled(name, key):
        return statistics.mean(a[key] for a in results[name])

    alpha = pooled("sps sample", "alpha")
    rows.append((f"SpS over ArS, 4 lanes, K = 4, alpha {pooled('sps 4', 'alpha'):.3f}", over("sps 4", "ars 4"), ">=", 1.8))
    if cells:
        drawn = {k: [a["tokens_per_loop"] for _, j, a in cells if j == k] for k in GRID_K}
        speed = {(lanes, k): lanes * statistics.mean(drawn[k]) / a["loop_ms"] * 1000 for lanes, k, a in cells}
        best = max(speed, key=speed.get)
        rows.append((f"auto: tokens/s over the best cell's ({best[0]} lanes, K = {best[1]})", statistics.median(a["tokens_per_s"] for a in auto) / speed[best], ">=", 0.95))
    theory = tokens_per_loop(alpha, 4) * median(lambda r: r["t1"]["ms"] / (4 * r["d1"]["ms"] + r["t5"]["ms"]))
    rows.append((f"measured speed-up over theory's {theory:.2f}, one lane, K = 4", over("sps sample", "ars") / theory, ">=", 0.97))
    rows.append(("n = 16 samples of one prompt of 256 tokens: tokens prefilled over n = 1", median(lambda r: r["prefill 16"]["tokens"] / r["prefill 1"]["tokens"]), "<=", 1.1))

    print("| measure | measured | mark | |\n|---|---|---|---|")
    for name, value, sign, mark in rows:
        met = value <= mark if sign == "<=" else value >= mark
        print(f"| {name} | {value:.3f} | {sign} {mark:g} | {'met' if met else 'NOT MET'} |")
    others = [a["others"] for answers in results.values() for a in answers] + [a["others"] for *_, a in cells] + [a["others"] for a in auto]
    print(f"\n{len(next(iter(results.values())))} rounds, {len(others)} answers; others kept {statistics.mean(others):.2f} CPUs busy on average, {max(others):.2f} at worst")
    print(f"\nfloor {floor:.2f} ms ({size / 1e6:.0f} MB at {median(lambda r: r['bandwidth']['best']) / 1e9:.2f} GB/s)\n")
    print("| | ms | | tokens/s | tokens per loop |\n|---|---|---|---|---|")
    for _, request, name in ROUND:
        ms = [f"{median(lambda r: r[name]['ms']):.3f}"] if "ms" in results[name][0] and "prefill" not in name else [""]
        tps = f"{rate(name):.1f}" if "tokens_per_s" in results[name][0] else ""
        tpl = f"{pooled(name, 'tokens_per_loop'):.2f}" if "tokens_per_loop" in results[name][0] else ""
        loop = f"loop {median(lambda r: r[name]['loop_ms']):.2f} ms" if "loop_ms" in results[name][0] else ""
        if ms[0] or tps:
            print(f"| {name} | {ms[0]} | {loop} | {tps} | {tpl} |")
    if cells:
        print("\ntokens/s, loop time measured, tokens per loop pooled over lanes\n\n| lanes | " + " | ".join(f"K = {k}" for k in GRID_K) + " |\n|" + "---|" * (len(GRID_K) + 1))
        for lanes in GRID_LANES:
            print(f"| {lanes} | " + " | ".join(f"{speed[lanes, k]:.0f}" for k in GRID_K) + " |")
        print("\nauto: " + ", ".join(f"{a['tokens_per_s']:.0f} tokens/s with {a['lanes']:.1f} lanes and {a['tokens_per_loop']:.2f} tokens per loop" for a in auto))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--pair", type=Path, required=True, help="what make_pair.py wrote")
    ap.add_argument("--bin", type=Path, required=True, help="folder of the programs ours and bandwidth")
    ap.add_argument("--python", default=sys.executable, help="interpreter with the peers")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--quiet", type=float, default=0.15, help="CPUs that others may keep busy before an answer is asked for again, twice at most")
    ap.add_argument("--no-grid", action="store_true", help="leave auto and its grid out")
    ap.add_argument("--session", default="", help="session options of draftmill's, key=value,..")
    ap.add_argument("--log", type=Path, default=Path("bench.jsonl"), help="every single answer")
    ap.add_argument("--minutes", type=float, default=MINUTES, help="about how long to take: fewer rounds and retries where the machine is slow or busy")
    ap.add_argument("--write", type=Path, help=f"a document that gets the table too, between {BEGIN} and {END}")
    a = ap.parse_args()
    globals()["MINUTES"] = a.minutes
    pair = json.loads((a.pair / "pair.json").read_text())
    systems = start(a)
    try:
        versions = check(systems, pair)
        with a.log.open("w") as log:
            results = measure(systems, a.rounds, a.quiet, log)
            cells, auto = ([], []) if a.no_grid else grid(systems["draftmill"], a.quiet, log)
    finally:
        for system in systems.values():
            system.close()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print_machine(versions)
        table(results, cells, auto, pair)
    print(text.getvalue(), end="")
    if a.write:
        document = a.write.read_text()
        before, rest = document.split(BEGIN, 1)
        after = rest.split(END, 1)[1]
        a.write.write_text(f"{before}{BEGIN}\n\n{text.getvalue().strip()}\n\n{END}{after}")


BEGAN = time.monotonic()
if __name__ == "__main__":
    main()
