"""Trains the SentencePiece-unigram tokenizer of both models, in T5's form: <pad> 0, </s> 1, <unk> 2, and </s> behind every text.

    python make_tokenizer.py train.jsonl OUTDIR
"""

import json
import sys
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCAB, SENTENCES = 512, 20_000


def main(src, out):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.NFKC()
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tok.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=VOCAB, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    with open(src) as f:
        tok.train_from_iterator((text for line in islice(f, SENTENCES) for text in json.loads(line)), trainer)
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    Path(out).mkdir(parents=True, exist_ok=True)
    tok.save(str(Path(out) / "tokenizer.json"))
    (Path(out) / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "model_max_length": 256}, indent=2) + "\n")
    print(tok.get_vocab_size(), "entries")


if __name__ == "__main__":
    main(*sys.argv[1:])
