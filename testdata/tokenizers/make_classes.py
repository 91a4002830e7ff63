"""Write classes.json.gz: for every code point, what the Rust `tokenizers` library takes it for.

The library has tables of several Unicode versions inside; this script asks it about each code point through its own normalizers and
pre-tokenizers. pipeline/tokenize/gen_tables.go makes the package's tables from the answers, and a test there compares all code points.

    python make_classes.py        (about two minutes; versions in requirements.txt)
"""

import gzip
import hashlib
import json
import pathlib

from tokenizers import Regex
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(predicate):
    """Code points for which predicate holds, as [first, last] pairs."""
    out = []
    for c in CODE_POINTS:
        if predicate(chr(c)):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def pattern(p):
    split = pre.Split(Regex(p), "removed")
    return ranges(lambda c: not split.pre_tokenize_str(c))


def removed_by(step):
    return ranges(lambda c: not step.pre_tokenize_str(c))


def erased_by(step):
    return ranges(lambda c: step.normalize_str(c) == "")


def word(c, split=pre.Whitespace()):
    return split.pre_tokenize_str("a" + c)[0][0] == "a" + c


def numeric(c, split=pre.Digits(individual_digits=True)):
    return len(split.pre_tokenize_str("x" + c)) == 2


def form(step):
    """What changes under a normalization form: the code points, and a digest of what they become."""
    digest = hashlib.sha256()

    def changes(c):
        out = step.normalize_str(c)
        if out != c:
            digest.update(out.encode())
        return out != c

    changed = ranges(changes)
    return {"changed": changed, "sha256": digest.hexdigest()}


def moves(c, nfd=norm.NFD()):
    """Whether a mark that is not a decomposition itself changes places with a mark of another combining class."""
    if nfd.normalize_str(c) != c:
        return False
    return nfd.normalize_str(c + "\u0334") != c + "\u0334" or nfd.normalize_str("\u0345" + c) != "\u0345" + c


def main():
    bert = norm.BertNormalizer
    categories = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
    lower = norm.Lowercase()
    out = {
        "onig": {name: pattern(r"\p{%s}" % name) for name in categories},
        "onig_han": pattern(r"\p{Han}"),
        "onig_s": pattern(r"\s"),
        "onig_w": pattern(r"\w"),
        "onig_d": pattern(r"\d"),
        "onig_h": pattern(r"\h"),
        "onig_fold": pattern(r"(?i:[a-z])"),
        "space": removed_by(pre.WhitespaceSplit()),
        "punctuation": removed_by(pre.Punctuation("removed")),
        "word": ranges(word),
        "numeric": ranges(numeric),
        "mark": erased_by(norm.StripAccents()),
        "cleaned": erased_by(bert(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)),
        "nonspacing": erased_by(bert(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)),
        "moves": ranges(moves),
        "lower": {ord(c): [ord(x) for x in lower.normalize_str(c)] for c in map(chr, CODE_POINTS) if lower.normalize_str(c) != c},
        "forms": {name: form(getattr(norm, name)()) for name in ("NFC", "NFD", "NFKC", "NFKD")},
    }
    data = json.dumps(out, separators=(",", ":")).encode()
    path = pathlib.Path(__file__).with_name("classes.json.gz")
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(path.name, len(data), "bytes,", path.stat().st_size, "compressed")


if __name__ == "__main__":
    main()
