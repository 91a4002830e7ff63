"""Trains the byte-level BPE tokenizer of both models on the first problems of the training text.

    python make_tokenizer.py train.jsonl OUTDIR
"""

import json
import sys
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EOS = "<|endoftext|>"
VOCAB = 2048
PROBLEMS = 10_000


def main(src, out):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[EOS], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    with open(src) as f:
        tok.train_from_iterator(("".join(json.loads(line)) for line in islice(f, PROBLEMS)), trainer)
    Path(out).mkdir(parents=True, exist_ok=True)
    tok.save(str(Path(out) / "tokenizer.json"))
    (Path(out) / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "bos_token": EOS, "pad_token": EOS,
        "add_prefix_space": False, "clean_up_tokenization_spaces": False, "model_max_length": 1024}, indent=2) + "\n")
    print(tok.get_vocab_size(), "entries")


if __name__ == "__main__":
    main(*sys.argv[1:])
