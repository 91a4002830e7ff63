"""Measures draftmill and its peers on a real pair of int4 models, in turns, and prints the table of docs/benchmarks.md."""

import argparse
import contextlib
import io
import statistics
import sys
from pathlib import Path

import run
from run import System

HERE = Path(__file__).resolve().parent
SAMPLING = "nucleus"  # temperature 0.8, top-p 0.95

# What one round asks for: system, request, and how it is called below.
ROUND = [
    ("memory", "read", "bandwidth"),
    ("draftmill", "pass target-int4 1 1", "t1"),
    ("draftmill", "pass target-int4 1 5", "t5"),
    ("draftmill", "pass target-int4 1 8", "t8"),
    ("draftmill", "pass draft-int4 1 1", "d1"),
    ("draftmill", f"decode int4 0 1 {SAMPLING} 6", "ars"),
    ("llama.cpp", f"decode int4 0 1 {SAMPLING} 6", "llama q4_0"),
    ("llama.cpp", f"decode q4km 0 1 {SAMPLING} 6", "llama q4_k_m"),
    ("draftmill", f"decode int4 4 1 {SAMPLING} 8", "sps 4"),
    ("draftmill", f"decode int4 auto 1 {SAMPLING} 8", "sps auto"),
    ("llama.cpp", f"decode int4 4 1 {SAMPLING} 6", "llama q4_0 sps"),
    ("llama.cpp", f"decode q4km 4 1 {SAMPLING} 6", "llama q4_k_m sps"),
    ("onnxruntime-genai", f"decode int4 4 1 {SAMPLING} 6", "genai sps"),
    ("draftmill", f"decode int4 0 8 {SAMPLING} 6", "ars 8"),
    ("llama.cpp", f"decode int4 0 8 {SAMPLING} 6", "llama q4_0 8"),
    ("llama.cpp", f"decode q4km 0 8 {SAMPLING} 6", "llama q4_k_m 8"),
    ("draftmill", f"decode int4 0 16 {SAMPLING} 6", "ars 16"),
    ("draftmill", "feed int4 512", "prefill"),
    ("llama.cpp", "prefill q4km 512", "llama prefill"),
]
BEGIN, END = "<!-- real -->", "<!-- end of real -->"


def start(a):
    pair = str(a.pair)
    systems = {
        "memory": System("memory", [str(a.bin / "bandwidth"), "2"]),
        "draftmill": System("draftmill", [str(a.bin / "ours"), "-pair", pair]),
        "llama.cpp": System("llama.cpp", [a.python, str(HERE / "peer_llamacpp.py"), pair]),
        "onnxruntime-genai": System("onnxruntime-genai", [a.python, str(HERE / "peer_genai.py"), pair]),
    }
    return systems


def table(results):
    """Prints each measure beside its mark."""

    def median(f):
        n = min(len(v) for v in results.values())
        return statistics.median(f({k: v[i] for k, v in results.items()}) for i in range(n))

    def rate(name):
        return median(lambda r: r[name]["tokens_per_s"])

    def best(r, *names):
        return max(r[n]["tokens_per_s"] for n in names)

    def floor(r):
        return r["t1"]["weight_bytes"] / r["bandwidth"]["best"] * 1000

    alpha = statistics.mean(x["alpha"] for x in results["sps 4"])
    theory = median(lambda r: run.tokens_per_loop(alpha, 4) * r["t1"]["ms"] / (4 * r["d1"]["ms"] + r["t1"]["ms"]))
    rows = [
        ("ArS, one sequence: ms per token over the floor (bytes of weights / read bandwidth)", median(lambda r: r["ars"]["loop_ms"] / floor(r)), "<=", 1.20),
        ("scoring 5 tokens over scoring 1", median(lambda r: r["t5"]["ms"] / r["t1"]["ms"]), "<=", 1.10),
        ("scoring 8 tokens over scoring 1", median(lambda r: r["t8"]["ms"] / r["t1"]["ms"]), "<=", 1.30),
        ("ArS, tokens/s: 8 sequences over one", median(lambda r: r["ars 8"]["tokens_per_s"] / r["ars"]["tokens_per_s"]), ">=", 5.5),
        ("ArS, tokens/s: 16 sequences over one", median(lambda r: r["ars 16"]["tokens_per_s"] / r["ars"]["tokens_per_s"]), ">=", 6.5),
        ("prefill of 512 tokens: tokens/s over llama.cpp's (Q4_K_M)", median(lambda r: r["llama prefill"]["ms"] / r["prefill"]["ms"]), ">=", 1.5),
        ("SpS over ArS, one sequence, auto", median(lambda r: r["sps auto"]["tokens_per_s"] / r["ars"]["tokens_per_s"]), ">=", 1.4),
        ("SpS over ArS, one sequence, K = 4", median(lambda r: r["sps 4"]["tokens_per_s"] / r["ars"]["tokens_per_s"]), ">=", 0),
        (f"measured speed-up over theory's {theory:.2f} (alpha {alpha:.3f}), K = 4", median(lambda r: r["sps 4"]["tokens_per_s"] / r["ars"]["tokens_per_s"]) / theory, ">=", 0.93),
        ("ArS, one sequence: tokens/s over llama.cpp's better", median(lambda r: r["ars"]["tokens_per_s"] / best(r, "llama q4_0", "llama q4_k_m")), ">=", 1.5),
        ("ArS, 8 sequences: tokens/s over llama.cpp's better", median(lambda r: r["ars 8"]["tokens_per_s"] / best(r, "llama q4_0 8", "llama q4_k_m 8")), ">=", 3),
        ("SpS, auto: tokens/s over llama.cpp's best, with or without its own speculation", median(lambda r: r["sps auto"]["tokens_per_s"] / best(r, "llama q4_0", "llama q4_k_m", "llama q4_0 sps", "llama q4_k_m sps")), ">=", 2),
        ("SpS, auto: tokens/s over onnxruntime-genai's own speculation", median(lambda r: r["sps auto"]["tokens_per_s"] / r["genai sps"]["tokens_per_s"]), ">=", 2),
        ("sampling per loop, K = 4, ms", median(lambda r: r["sps 4"]["sample_ms"]), "<=", 1.0),
    ]
    print("| measure | measured | mark | |\n|---|---|---|---|")
    for name, value, sign, mark in rows:
        met = value <= mark if sign == "<=" else value >= mark
        print(f"| {name} | {value:.3f} | {f'{sign} {mark:g}' if mark else ''} | {('met' if met else 'NOT MET') if mark else ''} |")
    others = [a["others"] for answers in results.values() for a in answers]
    print(f"\n{len(results['ars'])} rounds, {len(others)} answers; others kept {statistics.mean(others):.2f} CPUs busy on average, {max(others):.2f} at worst")
    print(f"\nfloor {median(floor):.2f} ms ({results['t1'][0]['weight_bytes'] / 1e6:.0f} MB at {median(lambda r: r['bandwidth']['best']) / 1e9:.2f} GB/s)\n")
    print("| | ms | tokens/s | tokens per loop |\n|---|---|---|---|")
    for _, request, name in ROUND:
        first = results[name][0]
        ms = f"{median(lambda r: r[name].get('ms', r[name].get('loop_ms', 0))):.2f}" if "ms" in first or "loop_ms" in first else ""
        tps = f"{rate(name):.1f}" if "tokens_per_s" in first else ""
        tpl = f"{statistics.mean(x['tokens_per_loop'] for x in results[name]):.2f}" if "tokens_per_loop" in first else ""
        if ms or tps:
            print(f"| {name} | {ms} | {tps} | {tpl} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--pair", type=Path, required=True, help="folder that real.sh made")
    ap.add_argument("--bin", type=Path, required=True, help="folder of the programs ours and bandwidth")
    ap.add_argument("--python", default=sys.executable, help="interpreter with the peers")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--quiet", type=float, default=0.15, help="CPUs that others may keep busy before an answer is asked for again, twice at most")
    ap.add_argument("--log", type=Path, default=Path("real.jsonl"), help="every single answer")
    ap.add_argument("--minutes", type=float, default=20, help="about how long to take")
    ap.add_argument("--write", type=Path, help=f"a document that gets the table too, between {BEGIN} and {END}")
    a = ap.parse_args()
    run.MINUTES, run.ROUND = a.minutes, ROUND
    systems = start(a)
    try:
        versions = [s.ask("info") for name, s in systems.items() if name != "memory"]
        with a.log.open("w") as log:
            results = run.measure(systems, a.rounds, a.quiet, log)
    finally:
        for system in systems.values():
            system.close()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        run.print_machine(versions)
        table(results)
    print(text.getvalue(), end="")
    if a.write:
        document = a.write.read_text()
        before, rest = document.split(BEGIN, 1)
        a.write.write_text(f"{before}{BEGIN}\n\n{text.getvalue().strip()}\n\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
