"""Makes golden.json.gz: what rouge-score says of pairs of texts, and NLTK's stemmer of words.

    pip install rouge-score==0.1.2 nltk==3.10.4
    python make_golden.py

The texts are drawn from words that are made of roots and endings, so that every rule of the
stemmer is met, from this project's documents, and from what is hard to tokenize.
"""

import gzip
import json
import random
import re
from pathlib import Path

from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
rng = random.Random(17)

ROOTS = """relat condit ration valenc hesit digit conform radic differ vil analog vietnam predic oper feud decis hop call
form sensit sensib triplic formal electr good reviv allow infer airlin gyroscop adjust defens irrit replac depend adopt commun
activ angular homolog effect bowdler prob rat ceas contr roll happ sk fl tr enjo pl sp say hopp tann fall hiss fizz fail fil
conflat troubl siz feed agre plaster bl motor sing caress pon t cat abl y yy syzyg ay oy theolog geolog bull full beauti use
care wonder hes ill st be a i o ly lie d die n new inn out cann how proc exc succ wox box tow""".split()
ENDINGS = """ s es ies ss sses ed ing ied eed y ly ational tional enci anci izer bli abli alli entli eli ousli ization ation ator alism
iveness fulness ousness aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant
ement ment ent sion tion ion ou ism ate iti ous ive ize e le ll lle ying yed yy ingly edly""".split(" ")
IRREGULAR = "sky skies dying lying tying news innings inning outings outing cannings canning howe proceed exceed succeed".split()
HARD = ["", " ", "\n", "İstanbul", "Straße naïve café", "K 5 Å", "don't stop", "3.14 1,000", "under_score", "日本語 text", "a\tb\rc\x0bd",
        "\u2028line", "ΣΑΣ sas", "ﬁne", "x" * 30, "yyyyyy", "12 34 12 34", "the the the the"]


def words():
    made = {r + e for r in ROOTS for e in ENDINGS} | {r + e + f for r in ROOTS for e in ENDINGS for f in ("s", "ed", "ly", "ness") if rng.random() < 0.1}
    text = re.findall("[a-z0-9]+", " ".join(p.read_text().lower() for p in [ROOT / "ARCHITECTURE.md", ROOT / "storage" / "FORMAT.md"]))
    return sorted(made | set(text) | set(IRREGULAR))


VOCABULARY = words()
COMMON = "the a of in and to was is on that with for it as by said".split()


def text(n):
    out = []
    for _ in range(n):
        r = rng.random()
        w = rng.choice(COMMON) if r < 0.4 else rng.choice(VOCABULARY[:60]) if r < 0.6 else rng.choice(VOCABULARY) if r < 0.97 else rng.choice(HARD)
        out.append(w.capitalize() if rng.random() < 0.1 else w)
        out.append(rng.choice([" ", " ", " ", " ", ", ", ".\n", "\n", " - "]))
    return "".join(out)


def disturbed(t):
    """A prediction that shares much with the text."""
    parts = re.split(r"(\s+)", t)
    out = []
    for p in parts:
        r = rng.random()
        if r < 0.15:
            continue
        out.append(rng.choice(VOCABULARY) if r < 0.25 else p + "s" if r < 0.3 and p.strip() else p)
    if rng.random() < 0.3:
        i = rng.randrange(len(out) + 1)
        out = out[i:] + out[:i]
    return "".join(out)


def main():
    stemmer = PorterStemmer()
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorers = [rouge_scorer.RougeScorer(kinds, use_stemmer=s) for s in (False, True)]
    pairs = [(a, b) for a in HARD for b in HARD]
    while len(pairs) < 3000:
        a = text(rng.choice([1, 2, 5, 12, 25, 60]))
        pairs.append((a, disturbed(a) if rng.random() < 0.8 else text(rng.randrange(30))))
    scored = []
    for a, b in pairs:
        row = [a, b]
        for s in scorers:
            r = s.score(a, b)
            row.append([x for k in kinds for x in (r[k].precision, r[k].recall, r[k].fmeasure)])
        scored.append(row)
    data = {"stems": {w: stemmer.stem(w) for w in VOCABULARY if len(w) > 3}, "pairs": scored}
    with gzip.GzipFile(HERE / "golden.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(data, ensure_ascii=False).encode())


main()
