"""One pair on one GPU: a Markdown table of tokens per second, within a limit of time.

    python gpu.py --pair PAIR --ours PROGRAM --precision bf16 [--device cuda] [--limit 420]

It asks the program `ours`, and with --transformers PyTorch's peer, in the form of README.md. What does not answer in time
is ended, and its cell says so; the table is printed whatever happens. Standard library only.
"""

import argparse
import json
import platform
import queue
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path


class Late(Exception):
    """No answer in time."""


class Program:
    """One that answers requests line by line."""

    def __init__(self, command, log):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, request, seconds):
        try:
            print(request, file=self.process.stdin, flush=True)
            line = self.lines.get(timeout=max(seconds, 0.1))
        except queue.Empty:
            self.end()
            raise Late(f"no answer to {request!r} in {seconds:.0f} s") from None
        except BrokenPipeError:
            line = None
        if line is None:
            raise Late(f"{Path(self.command[0]).name} ended at {request!r}: see the log")
        return json.loads(line)

    def end(self):
        self.process.kill()
        self.process.wait()


def first_line(*command):
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return out.splitlines()[0] if out else ""


def machine(device):
    if device.startswith("cuda"):
        if line := first_line("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"):
            return line
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def expected(alpha, k):
    """Tokens of a loop: (1 - alpha^(K+1)) / (1 - alpha)."""
    return (k + 1) if alpha >= 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


class Bench:
    def __init__(self, a):
        self.a, self.end, self.failures = a, time.monotonic() + a.limit, []
        self.log = open(a.log, "w")

    def left(self, most):
        return min(most, self.end - time.monotonic())

    def ask(self, program, request, most):
        """The answer, or None, which is noted."""
        if program is None or self.left(most) <= 0:
            self.failures.append(f"`{request}`: not run, the time was over")
            return None
        try:
            return program.ask(request, self.left(most))
        except Late as late:
            self.failures.append(str(late))
            return None

    def ours(self, *more):
        command = [self.a.ours, "-pair", str(self.a.pair), "-device", self.a.device, *more]
        return Program(command, self.log)

    def decode(self, program, k, lanes, place=""):
        return self.ask(program, f"decode {self.a.precision} {k} {lanes} {self.a.how}{place} {self.a.seconds}", 20 * self.a.seconds + self.a.load)

    def system(self, name, *more):
        """Rows of one way of running draftmill."""
        a, program = self.a, self.ours(*more)
        if self.ask(program, "info", a.load) is None:
            return
        floor = None
        if not more:
            floor = self.floor(program)
            self.head()
        for lanes in a.sequences:
            ars, sps = self.decode(program, 0, lanes), self.decode(program, a.k, lanes)
            theory = ""
            if floor and lanes == 1 and sps:
                one, wide, draft = floor
                theory = f"{expected(sps['alpha'], a.k) / ((a.k * draft + wide) / one):.2f}"
            self.row(name, lanes, ars, sps, theory)
            if not more:
                ars, sps = self.decode(program, 0, lanes, "@device"), self.decode(program, a.k, lanes, "@device")
                self.row(name + ", sampler on the device", lanes, ars, sps)
        program.end()

    def floor(self, program):
        """Milliseconds of bare passes: the target's of 1 and K+1 tokens, the draft's of one."""
        a = self.a
        times = [self.ask(program, r, a.load) for r in (f"pass target-{a.precision} 1 1", f"pass target-{a.precision} 1 {a.k + 1}", f"pass draft-{a.precision} 1 1")]
        if not all(times):
            return None
        one, wide, draft = (t["ms"] for t in times)
        print(f"\nBare passes: target {one:.3f} ms for 1 token, {wide:.3f} ms for {a.k + 1}; draft {draft:.3f} ms.", end="")
        if a.bandwidth:
            bound = times[0]["bytes"] / a.bandwidth / 1e6
            print(f" The target's {times[0]['bytes'] / 1e9:.2f} GB at {a.bandwidth:.0f} GB/s: {bound:.3f} ms, {bound / one:.2f} of the bound.", end="")
        why = times[0]["not_ragged"]
        print(f" Passes are {'ragged' if not why else 'one sequence after another: ' + why}.")
        return one, wide, draft

    def head(self):
        print(f"\n| system | sequences | ArS tokens/s | SpS tokens/s, K = {self.a.k} | SpS/ArS | theory | tokens/loop | alpha | waits/loop | sampling |")
        print("|---|---|---|---|---|---|---|---|---|---|")

    def row(self, name, lanes, ars, sps, theory=""):
        rate = lambda r: f"{r['tokens_per_s']:.1f}" if r else "-"
        cells = [name, lanes, rate(ars), rate(sps), f"{sps['tokens_per_s'] / ars['tokens_per_s']:.2f}" if ars and sps else "-", theory]
        cells += [f"{sps[key]:.2f}" if sps and key in sps else "" for key in ("tokens_per_loop", "alpha", "waits")]
        share = ""
        if sps and "sample_ms" in sps:
            share = f"{100 * sps['sample_ms'] / (sps['draft_ms'] + sps['score_ms'] + sps['sample_ms']):.1f}%"
        print("| " + " | ".join(map(str, [*cells, share])) + " |", flush=True)

    def peer(self):
        """PyTorch's transformers: batches without a draft, one sequence with."""
        a = self.a
        kind = {"fp16": "float16", "bf16": "bfloat16"}.get(a.precision, "float32")
        command = [a.transformers, str(Path(__file__).parent / "peer_transformers.py"), str(a.pair), "2", a.device, kind]
        program = Program(command, self.log)
        if self.ask(program, "info", a.load) is None:
            return
        for lanes in a.sequences:
            ars = self.decode(program, 0, lanes)
            sps = self.decode(program, a.k, lanes) if lanes == 1 else None
            self.row("transformers", lanes, ars, sps)
        program.end()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pair", type=Path, required=True)
    ap.add_argument("--ours", required=True)
    ap.add_argument("--precision", default="bf16")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 32, 64])
    ap.add_argument("--k", type=int, default=4)
    ap.add_argument("--how", default="sample")
    ap.add_argument("--seconds", type=int, default=4, help="of each rate")
    ap.add_argument("--load", type=int, default=120, help="seconds that loading the models may take")
    ap.add_argument("--limit", type=float, default=420, help="seconds of everything")
    ap.add_argument("--bandwidth", type=float, default=0, help="GB/s that the device's memory reads")
    ap.add_argument("--transformers", help="a python with transformers: the peer is measured too")
    ap.add_argument("--log", default="/dev/null")
    a = ap.parse_args()
    b = Bench(a)
    print(f"Machine: {machine(a.device)}. Command: `{shlex.join(sys.argv)}`.")
    about = a.pair / "pair.json"
    if about.exists():
        print(f"Pair: `{about.read_text().strip()}`.")
    b.system("draftmill")
    if a.device.startswith("cuda"):
        b.system("draftmill, recorded", "-provider", "enable_cuda_graph=1")
        b.system("draftmill, as exported", "-exported")
    if a.transformers:
        b.peer()
    for failure in b.failures:
        print(f"\nMissing: {failure}")
    sys.exit(1 if b.failures else 0)


if __name__ == "__main__":
    main()
