"""Make the golden files of pipeline/tokenize with the Rust `tokenizers` library (versions in requirements.txt).

    python make_golden.py            remake the golden files; train the tokenizers that are missing
    python make_golden.py --train    train all tokenizers again first

Training is not repeatable (the library's ties fall as its hash maps lie), so the trained tokenizers are kept; everything else is made
again to the byte. The golden file of the demo's tokenizer has to be made again whenever that tokenizer is.

What it writes here:

    NAME.json              a small tokenizer with exactly the sections of a well-known one (its vocabulary is trained on corpus.py)
    variants.json          more tokenizers, each a NAME.json with some sections replaced
    texts.json.gz          the texts, a list
    golden/NAME.jsonl.gz   a line for each text: [ids, plain ids, decoded without special tokens, decoded with them]
                           (0 stands for the text itself, null for the same as the item before),
                           then a line for each random sequence of ids: {"ids": ..., "skip": ..., "all": ...}
"""

import base64
import gzip
import json
import pathlib
import random
import struct
import sys

import corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
SEED = 20230202
TEXTS = 1000  # for each tokenizer
VARIANT_TEXTS = 500  # for each variant
SEQUENCES = 250  # random sequences of ids

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = ["<0x%02X>" % b for b in range(256)]


def byte_level_trainer(size, special):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)


def gpt2(lines):
    t = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, byte_level_trainer(1200, []))
    t.add_special_tokens(["<|endoftext|>"])
    j = json.loads(t.to_str())
    del j["model"]["type"]  # as in the first files of this format
    j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
    return j


def llama3(lines):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, byte_level_trainer(1200, []))
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|endoftext|>"])
    begin = ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))
    t.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1", special_tokens=[begin])]
    )
    j = json.loads(t.to_str())
    del j["model"]["merges"][-40:]  # so that ignore_merges decides: these words are tokens that no merge makes
    return j


def qwen2(lines):
    t = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, byte_level_trainer(1200, []))
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return json.loads(t.to_str())


def llama2(lines):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=1400, special_tokens=special + BYTES, limit_alphabet=220, max_token_length=16, show_progress=False)
    # SentencePiece learns inside of words; the finished model has no pre-tokenizer.
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.train_from_iterator(lines, trainer)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in special]
    return j


def unigram(lines):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    t.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    j = json.loads(t.to_str())
    rare = [v for v in j["model"]["vocab"] if len(v[0]) == 1 and ord(v[0]) > 0x3000][::2]  # leave something to byte fallback
    j["model"]["vocab"] = [v for v in j["model"]["vocab"] if v not in rare] + [[b, -12.0] for b in BYTES]
    j["model"]["byte_fallback"] = True
    return j


def bert(lines):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=1100, special_tokens=special, limit_alphabet=300, show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))]
    )
    return json.loads(t.to_str())


def clip(lines):
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
            pre_tokenizers.Digits(individual_digits=False),
        ]
    )
    t.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>", "</s>"], end_of_word_suffix="</w>", limit_alphabet=150, show_progress=False)
    t.train_from_iterator(lines, trainer)
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return json.loads(t.to_str())


def prefixed(lines):
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>", "</s>"], continuing_subword_prefix="##", limit_alphabet=120, show_progress=False)
    t.train_from_iterator(lines, trainer)
    t.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    return json.loads(t.to_str())


TRAINED = {f.__name__: f for f in (gpt2, llama3, qwen2, llama2, unigram, bert, clip, prefixed)}


def charsmap(rules):
    """SentencePiece's precompiled map: a double-array trie of the keys (Darts), then their values, each with a NUL."""
    texts, root = b"", {}
    for key, value in sorted(rules.items()):
        node = root
        for b in key.encode():
            node = node.setdefault(b, {})
        node[0] = len(texts)
        texts += value.encode() + b"\0"
    units, taken = {}, {0}

    def place(node, position, label):
        base = next(b for b in range(1, 1 << 16) if all(b ^ c not in taken for c in node))
        taken.update(base ^ c for c in node)
        units[position] = (position ^ base) << 10 | (0 in node) << 8 | label
        for c, child in node.items():
            if c == 0:
                units[base] = child | 1 << 31
            else:
                place(child, base ^ c, c)

    place(root, 0, 0)
    size = (max(max(units), max(taken)) | 0xFF) + 1
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return base64.b64encode(struct.pack("<I", len(array)) + array + texts).decode()


def added(content, **options):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": 0, "content": content, **flags, **options}


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def metaspace(scheme, do_split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": do_split}


def variants():
    """(name, base, sections replaced, keys of the model replaced)"""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = [
        added("<mask>", lstrip=True, special=True),
        added("<left>", lstrip=True),
        added("<right>", rstrip=True),
        added("<both>", lstrip=True, rstrip=True, normalized=True),
        added("word", single_word=True),
        added("Tag", normalized=True, special=True),
        added("Café", normalized=True, single_word=True),
        added("  "),
        added("\n\n", normalized=True),
    ]
    yield "gpt2-prefix-space", "gpt2", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}}, {}
    yield "gpt2-added", "gpt2", {"added_tokens": flags}, {}
    yield "gpt2-o200k", "gpt2", {"pre_tokenizer": sequence("pretokenizers", split(O200K, "Isolated"), byte_level)}, {}
    yield "gpt2-cl100k", "gpt2", {"pre_tokenizer": sequence("pretokenizers", split(CL100K, "Removed", True), byte_level)}, {}
    yield "gpt2-deepseek", "gpt2", {
        "pre_tokenizer": sequence("pretokenizers", split(r"\p{N}{1,3}", "Isolated"), split("[一-龥぀-ゟ゠-ヿ]+", "Isolated"), split(DEEPSEEK, "Isolated"), byte_level)
    }, {}
    yield "gpt2-starcoder", "gpt2", {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True})}, {}
    yield "gpt2-falcon", "gpt2", {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]", "Isolated"))}, {}
    yield "gpt2-normalizer-bytes", "gpt2", {"normalizer": sequence("normalizers", {"type": "NFC"}, {"type": "ByteLevel"}), "pre_tokenizer": None, "added_tokens": flags[:4]}, {}
    yield "gpt2-none", "gpt2", {"pre_tokenizer": None, "decoder": None, "post_processor": None}, {}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            name = "gpt2-split-%s-%s" % (behavior.lower(), "inverted" if invert else "plain")
            yield name, "gpt2", {"pre_tokenizer": sequence("pretokenizers", split(r"\s|[a-c]\w?", behavior, invert), split(" ", behavior, invert, "String"), byte_level)}, {}
    yield "gpt2-patterns", "gpt2", {
        "pre_tokenizer": sequence(
            "pretokenizers",
            split(r"\b\w+\b", "Isolated"),
            split(r"(?<=\d)(?=(?:\d{3})+(?!\d))|^[ \t]+|[^\S\n]+$", "MergedWithNext"),
            split(r"[\p{Lu}&&[^\p{Han}A-C]]|\P{L}(?:x*?y{,2}|\x{4E2D}\u6587)|(?>\h{2})|x{2}+|\W\B", "Isolated"),
            byte_level,
        )
    }, {}
    yield "gpt2-punctuation", "gpt2", {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "WhitespaceSplit"}, byte_level)}, {}
    yield "llama2-metaspace-first", "llama2", {"normalizer": None, "pre_tokenizer": metaspace("first", False)}, {}
    yield "llama2-metaspace-never", "llama2", {"normalizer": None, "pre_tokenizer": metaspace("never")}, {}
    yield "llama2-first-normalized", "llama2", {"normalizer": sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "NFD"}, {"type": "Lowercase"}), "pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "Isolated"}, metaspace("first"))}, {}
    yield "llama2-added", "llama2", {"added_tokens": [added("<unk>", special=True), added("<s>", special=True), added("</s>", special=True), *flags]}, {}
    yield "llama2-gemma", "llama2", {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": split(" ", "MergedWithPrevious", False, "String"),
        "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}),
    }, {}
    yield "llama2-no-bytes", "llama2", {}, {"byte_fallback": False, "fuse_unk": False}
    yield "llama2-no-unk", "llama2", {}, {"byte_fallback": False, "unk_token": None}
    yield "llama2-late-replace", "llama2", {
        "decoder": sequence("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "▁t"}, "content": "_T"}, {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}),
    }, {}
    yield "unigram-no-bytes", "unigram", {"normalizer": None, "decoder": sequence("decoders", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}, {"type": "Fuse"})}, {"byte_fallback": False}
    yield "unigram-no-splits", "unigram", {"normalizer": {"type": "NFKC"}, "pre_tokenizer": None}, {}
    rules = {"ａ": "a", "Ａ": "A", "①": "1", "½": "1/2", "ﬁ": "fi", "é": "é", "é": "e", "\u200b": "", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "が": "ガ", "か": "カ", "🇩": "D", "☺": ":)", "A": "a", "Å": "å", "ß": "ss", "中文": "Z", "नि": "ni"}
    yield "unigram-precompiled", "unigram", {"normalizer": sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"})}, {}
    yield "unigram-xlmr", "unigram", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}, "pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always"))}, {}
    yield "bert-cased", "bert", {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False}, "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}, {"max_input_chars_per_word": 12}
    yield "bert-added", "bert", {"normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}), "added_tokens": [added("[MASK]", lstrip=True, special=True), *flags[:8]]}, {}
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    yield "bert-truncation", "bert", {"truncation": truncation, "padding": padding}, {}  # ignored: golden switches both off
    yield "bert-nfkd", "bert", {"normalizer": sequence("normalizers", {"type": "NFKD"}, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Nmt"})}, {}
    yield "clip-merged", "clip", {"pre_tokenizer": sequence("pretokenizers", {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "MergedWithNext"}), "post_processor": None}, {"fuse_unk": True}


def write(path, data):
    path.write_bytes(gzip.compress(data.encode(), 9, mtime=0))


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sequences(t, rng):
    """Random ids: anything, or mostly single bytes, which rarely make UTF-8."""
    vocabulary = t.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values()) + 1
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    single = sorted(i for token, i in vocabulary.items() if token in alphabet or token in BYTES) or list(range(size))
    for _ in range(SEQUENCES):
        share = rng.choice([0, 0.5, 0.9, 1])
        yield [rng.choice(single) if rng.random() < share else rng.randrange(size + 2) for _ in range(rng.randint(0, 24))]


def golden(name, definition, texts):
    t = Tokenizer.from_str(json.dumps(definition))
    t.no_truncation()
    t.no_padding()
    rng = random.Random(SEED + sum(name.encode()))
    lines = []
    for text in texts:
        ids, plain = t.encode(text).ids, t.encode(text, add_special_tokens=False).ids
        skip, everything = t.decode(ids, skip_special_tokens=True), t.decode(ids, skip_special_tokens=False)
        lines.append(dump([ids, None if plain == ids else plain, 0 if skip == text else skip, None if everything == skip else everything]))
    for ids in sequences(t, rng):
        skip, everything = t.decode(ids, skip_special_tokens=True), t.decode(ids, skip_special_tokens=False)
        lines.append(dump({"ids": ids, "skip": skip, "all": None if everything == skip else everything}))
    write(HERE / "golden" / (name + ".jsonl.gz"), "\n".join(lines))


def numbers():
    """How the Rust tokenizers read numbers: pairs of what is written, and the shortest text of the float64 that they make of it."""
    rng = random.Random(SEED)
    written = [repr(score) for _, score in json.loads((HERE / "unigram.json").read_text())["model"]["vocab"]]
    written += ["0", "-0.0", "1", "10", "0.1", "123456789012345678901234567890.5", "-18446744073709551615", "18446744073709551616.25"]
    written += ["-0." + "0" * 30 + "123456789", "4.9e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "1E5", "1.5e+10", "-1e-400"]
    for _ in range(2000):
        digits = "".join(rng.choices("0123456789", k=rng.randint(1, 25)))
        exponent = "e%d" % rng.randint(-330, 250) if rng.random() < 0.5 else ""
        written.append("-%d.%s%s" % (rng.randrange(10 ** rng.randint(1, 12)), digits, exponent))
    vocabulary = ",".join('["t%d",%s]' % (i, text) for i, text in enumerate(written))
    t = Tokenizer.from_str('{"version":"1.0","added_tokens":[],"model":{"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[%s]}}' % vocabulary)
    read = json.loads(t.to_str(), parse_float=str, parse_int=str)["model"]["vocab"]
    write(HERE / "golden" / "numbers.json.gz", dump([[text, score] for text, (_, score) in zip(written, read, strict=True)]))


def main():
    (HERE / "golden").mkdir(exist_ok=True)
    for old in (HERE / "golden").glob("*.gz"):
        old.unlink()
    lines = corpus.training(SEED)
    for name, train in TRAINED.items():
        path = HERE / (name + ".json")
        if "--train" in sys.argv or not path.exists():
            path.write_text(json.dumps(train(lines), ensure_ascii=False, separators=(",", ":")) + "\n")
    texts = corpus.texts(SEED, TEXTS)
    write(HERE / "texts.json.gz", dump(texts))
    definitions = {name: json.loads((HERE / (name + ".json")).read_text()) for name in TRAINED}
    for name, definition in definitions.items():
        golden(name, definition, texts)
    listed = []
    for name, base, sections, model in variants():
        listed.append({"name": name, "base": base, "sections": sections, "model": model})
        definition = {**definitions[base], **sections}
        definition["model"] = {**definition["model"], **model}
        golden(name, definition, texts[:VARIANT_TEXTS])
    (HERE / "variants.json").write_text("[\n" + ",\n".join(map(dump, listed)) + "\n]\n")
    demo = HERE.parent / "demo" / "target" / "tokenizer.json"
    if demo.exists():
        golden("demo", json.loads(demo.read_text()), texts)
    numbers()
    files = [f for f in HERE.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    print(len(listed), "variants,", (len(definitions) + demo.exists()) * TEXTS + len(listed) * VARIANT_TEXTS, "encodings,", sum(f.stat().st_size for f in files), "bytes")


if __name__ == "__main__":
    main()
