"""What the peers' scripts have in common: the prompts, and answering requests line by line (see README.md)."""

import json
import sys
import time
from pathlib import Path

VOCAB, PROMPT, NEW = 32000, 96, 64
PAST = PROMPT + NEW // 2  # on average


texts = []  # token ids of real prompts, of PAIR/prompts.json; without them prompts are noise


def read_prompts(pair):
    """Takes the prompts from the pair's folder, where it has some."""
    path = Path(pair) / "prompts.json"
    if path.exists():
        texts.extend(json.loads(path.read_text()))


def prompt(number, n=PROMPT):
    """The tokens that every system decodes from, one list for each number."""
    if texts:
        text = texts[number % len(texts)]
        return (text * (n // len(text) + 1))[:n]
    x, tokens = (number + 1) * 7919, []
    for _ in range(n):
        x = (x * 1103515245 + 12345) % (1 << 31)
        tokens.append(1 + (x >> 8) % (VOCAB - 1))
    return tokens


def milliseconds(run, seconds=0.7, probe=3):
    """Mean milliseconds of run(), after a few to warm up."""
    begin = time.perf_counter()
    for _ in range(probe):
        run()
    n = max(probe, int(seconds * probe / (time.perf_counter() - begin)))
    begin = time.perf_counter()
    for _ in range(n):
        run()
    return (time.perf_counter() - begin) / n * 1000


def serve(verbs):
    """Answers 'VERB ARGUMENT..' with what verbs[VERB](ARGUMENT..) returns, a JSON line each."""
    for line in sys.stdin:
        verb, *arguments = line.split()
        print(json.dumps(verbs[verb](*arguments)), flush=True)
