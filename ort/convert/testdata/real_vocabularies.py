"""Writes GGUF files of real vocabularies, and what the tokenizers say that they belong to.

    python real_vocabularies.py TEXTS OUT_DIR [GGUF TOKENIZER_JSON]

TEXTS is testdata/tokenizers/texts.json.gz of the repository. Needs gguf, mistral-common[sentencepiece] and tokenizers. The
vocabularies are those that mistral-common carries, a tekken one and two of SentencePiece, as llama.cpp's converter
writes them; and the one of a GGUF file, for which the tokenizer.json of the same model speaks. None of them is kept here.
"""

import gzip
import json
import os
import random
import re
import sys
from pathlib import Path

import gguf
import mistral_common
import numpy as np
from gguf.vocab import MistralVocab
from tokenizers import Tokenizer

SEED, TEXTS = 7, 20_000
NAMES = {"tekken": "tekken_240911.json", "mistral-v1": "tokenizer.model.v1", "mistral-v3": "mistral_instruct_tokenizer_240323.model.v3"}


def texts(path):
    """The texts of the file, and pairs of them beside each other."""
    rng = random.Random(SEED)
    all = json.loads(gzip.open(path).read())
    own = len(all)
    while len(all) < TEXTS:
        all.append(all[rng.randrange(own)] + rng.choice(["", " ", "\n", "  "]) + all[rng.randrange(own)])
    return all


def plain(text):
    """Without what a tokenizer.json of a SentencePiece vocabulary reads in its own way: the sign that stands for a space,
    and runs of spaces that are no single token (SentencePiece merges equals from the left, a list of merges cannot)."""
    return re.sub(" {16,}", " ", text.replace("▁", "_"))


def mistral(name, out):
    """Writes NAME.gguf without tensors but for the embeddings' shape, and returns what encodes a text, and what it reads as
    plain text though it is the name of a token: Mistral's own tokenizers find no such names in texts."""
    folder = out / f"{name}.source"
    folder.mkdir()
    source = Path(mistral_common.__file__).parent / "data" / NAMES[name]
    target = folder / ("tekken.json" if source.suffix == ".json" else source.name)
    os.symlink(source, target)
    vocab = MistralVocab(folder)
    writer = gguf.GGUFWriter(out / f"{name}.gguf", "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(4)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(vocab.gguf_tokenizer_model)
    tokens, scores, kinds = zip(*vocab.all_tokens())
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(kinds))
    if vocab.gguf_tokenizer_model == "gpt2":
        writer.add_tokenizer_pre("tekken")
        writer.add_token_merges(vocab.extract_vocab_merges_from_model())
    else:
        writer.add_token_scores(list(scores))
    writer.add_bos_token_id(vocab.bos_id)
    writer.add_eos_token_id(vocab.eos_id)
    writer.add_unk_token_id(vocab.unk_id)
    writer.add_add_bos_token(False)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 4), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    names = [t.decode() for t, kind in zip(tokens, kinds) if kind in (gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN)]
    return lambda text: vocab.tokenizer.encode(text, bos=False, eos=False), names


def main(source, out, *model):
    out = Path(out)
    all = texts(source)
    encoders = {name: mistral(name, out) for name in NAMES}
    if model:
        os.symlink(Path(model[0]).resolve(), out / "model.gguf")
        tokenizer = Tokenizer.from_file(model[1])
        encoders["model"] = lambda text: tokenizer.encode(text).ids, []
    for name, (encode, names) in encoders.items():
        pattern = re.compile("|".join(map(re.escape, names)) or "(?!)")
        with gzip.open(out / f"{name}.jsonl.gz", "wt", compresslevel=1) as f:
            for text in all:
                if name != "tekken":
                    text = plain(text)
                while pattern.search(text):
                    text = pattern.sub("", text)
                f.write(json.dumps({"text": text, "ids": encode(text)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
