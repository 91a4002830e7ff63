"""Makes synthetic Python problems in HumanEval's form.

    python make_problems.py train OUT.jsonl --count 60000 --seed 1
    python make_problems.py train OUT.jsonl --count 60000 --seed 2 --plain
    python make_problems.py minieval minieval.parquet --count 80 --seed 7

A problem's key is its family and the kinds of its parts. One key in ten, chosen
by hash, is held out: no training text ever has that combination of parts, and
the evaluation problems have no other.
"""

import argparse
import hashlib
import json
import random
import re
import sys

import problem_families_more  # noqa: F401  (registers its families)
from problem_endings import add_ending
from problem_families import FAMILIES

EXTRA = ["The input is not changed.", "The order of the input is kept.", "See the examples below.", "Use plain Python only.",
         "The function must also work for inputs that are not in the examples.", "The result is computed in one pass.",
         "No error is raised for valid inputs.", "It is called often, so it should be simple.", "Inputs are never None.",
         "Nothing is printed; the value is returned."]


NOT_EVALUATED = {"chunks", "common"}  # none of their held-out combinations gives a problem


def held_out(family, ops):
    """Whether a combination of a family and kinds of parts is kept from training."""
    digest = hashlib.sha256("/".join([family, *ops]).encode()).digest()
    return digest[0] % 10 == 0


def old_style(types):
    """list[int] as typing's List[int]."""
    for new, old in [("list[", "List["), ("dict[", "Dict["), ("tuple[", "Tuple[")]:
        types = types.replace(new, old)
    return types


def load(source, name):
    env = {}
    exec(source, env)
    return env[name]


def call(source, name, args):
    """One call on fresh copies of the arguments."""
    return load(source, name)(*eval(repr(args)))


def render(r, family, p, tests, plain=False):
    """Prompt, body and test of one problem, or None where its inputs say too little."""
    name = re.sub(r"\W", "_", p["name"])
    if r.random() < 0.25:
        name = r.choice(["solve", "compute", "get", "make", "f", "find", "my"]) + "_" + name
    args = ", ".join(f"{a}: {t}" for a, t in p["args"])
    ret, imports = p["ret"], ""
    if r.random() < 0.3 and "[" in args + ret:
        args, ret = old_style(args), old_style(ret)
        used = sorted({w for w in ("Dict", "List", "Tuple") if w + "[" in args + ret})
        imports = f"from typing import {', '.join(used)}\n\n\n"
    header = f"def {name}({args}) -> {ret}:\n"
    body = "".join(f"    {line}\n" for line in p["body"])
    source = imports + header + body
    fn = load(source, name)
    seen, cases = set(), []
    for _ in range(40):
        a = p["inputs"](r)
        if repr(a) in seen:
            continue
        seen.add(repr(a))
        cases.append((repr(a), repr(fn(*a))))
        if len(cases) == 3 + tests:
            break
    if len({o for _, o in cases}) < 2 or any(len(i + o) > 160 for i, o in cases):
        return None
    shown = cases[: r.choice([2, 2, 3])]
    asked = cases[3:]
    doc = p["doc"]
    extra = r.sample(EXTRA, r.choice([0, 0, 0, 1, 1, 2]))
    doc, *more = re.split(r"(?<=\.) (?=[A-Z])", doc) if r.random() < 0.4 else [doc]
    lines = [doc, *more, *extra] if r.random() < 0.7 else [" ".join([doc, *more, *extra])]
    gap = "\n" if r.random() < 0.25 else ""
    quote = '"""' + r.choice(["", "", " "])
    text = quote + "\n    ".join(lines) + "\n" + gap
    for i, o in [] if plain else shown:
        i = i[1:-1].rstrip(",") if i.endswith(",)") else i[1:-1]
        text += f"    >>> {name}({i})\n    {o}\n"
    prompt = imports + header + "    " + text + '    """\n'
    test = "\n\nMETADATA = {}\n\n\ndef check(candidate):\n"
    for i, o in asked:
        test += f"    assert candidate(*{i}) == {o}\n"
    return dict(prompt=prompt, canonical_solution=body, test=test, entry_point=name, key="/".join([family, *p["ops"]]))


def draw(r, want_held_out, tests=0, families=None, plain=False):
    """One problem from the wanted side of the split."""
    for _ in range(100_000):
        family = r.choice(families or list(FAMILIES))
        p = FAMILIES[family](r)
        if held_out(family, p["ops"]) != want_held_out:
            continue
        try:
            out = render(r, family, add_ending(r, p, 0.85), tests, plain)
        except (OverflowError, RecursionError):
            continue
        if out is not None:
            return out
    raise RuntimeError(f"no problem of {families} on this side of the split")


def train(path, count, seed, plain):
    """Training problems, one JSON pair of prompt and solution per line; plain ones have no examples."""
    r = random.Random(seed)
    seen = set()
    with open(path, "w") as f:
        while len(seen) < count:
            p = draw(r, False, plain=plain)
            text = p["prompt"] + p["canonical_solution"]
            if text in seen:
                continue
            seen.add(text)
            f.write(json.dumps([p["prompt"], p["canonical_solution"]]) + "\n")


def minieval(path, count, seed):
    """Held-out problems, the families in turn, every test passed by its canonical solution."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    r = random.Random(seed)
    order = []
    rows = []
    while len(rows) < count:
        if not order:
            order = r.sample(list(FAMILIES), len(FAMILIES))
            order = [f for f in order if f not in NOT_EVALUATED]
        p = draw(r, True, tests=6, families=[order.pop()])
        env = {}
        exec(p["prompt"] + p["canonical_solution"] + p["test"], env)
        env["check"](env[p["entry_point"]])
        rows.append({"task_id": f"MiniEval/{len(rows)}", **{k: p[k] for k in ("prompt", "canonical_solution", "test", "entry_point")}})
    pq.write_table(pa.Table.from_pylist(rows), path)
    print(f"{len(rows)} problems, every canonical solution passes", file=sys.stderr)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=["train", "minieval"])
    ap.add_argument("out")
    ap.add_argument("--count", type=int, required=True)
    ap.add_argument("--seed", type=int, required=True)
    ap.add_argument("--plain", action="store_true")
    a = ap.parse_args()
    if a.what == "train":
        train(a.out, a.count, a.seed, a.plain)
    else:
        minieval(a.out, a.count, a.seed)


if __name__ == "__main__":
    main()
