"""Makes GGUF files without tensors of tokenizer.json files, as llama.cpp's converter writes vocabularies.

    python make_vocabularies.py TOKENIZERS OUT_DIR     (requirements.txt; TOKENIZERS is testdata/tokenizers of the repository)

gpt2-style vocabularies keep their merges; those of SentencePiece have scores, which for BPE are the order in which
its merges make tokens.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np

PRE = {"qwen2": "qwen2", "llama3": "llama-bpe", "gpt2": "gpt-2"}


def main(tokenizers, out):
    for name in ["gpt2", "qwen2", "llama3", "llama2"]:
        tok = json.loads((Path(tokenizers) / f"{name}.json").read_text())
        model = tok["model"]
        added = {t["id"]: t for t in tok["added_tokens"]}
        tokens = {i: t for t, i in model["vocab"].items()} | {i: t["content"] for i, t in added.items()}
        size = max(tokens) + 1 + 2  # rows without tokens behind them, as models have
        kinds, texts = [], []
        for i in range(size):
            texts.append(tokens.get(i, f"[PAD{i}]"))
            kind = gguf.TokenType.NORMAL
            if i not in tokens:
                kind = gguf.TokenType.UNUSED
            elif texts[-1] == model.get("unk_token"):
                kind = gguf.TokenType.UNKNOWN
            elif i in added:
                kind = gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED
            elif name == "llama2" and len(texts[-1]) == 6 and texts[-1].startswith("<0x"):
                kind = gguf.TokenType.BYTE
            kinds.append(kind)
        writer = gguf.GGUFWriter(Path(out) / f"{name}.gguf", "llama")
        writer.add_context_length(128)
        writer.add_embedding_length(16)
        writer.add_block_count(1)
        writer.add_feed_forward_length(16)
        writer.add_head_count(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model("llama" if name == "llama2" else "gpt2")
        writer.add_token_list(texts)
        writer.add_token_types(kinds)
        if name == "llama2":
            made = {}
            for rank, m in enumerate(model["merges"]):
                made.setdefault("".join(m if isinstance(m, list) else m.split(" ")), rank)
            writer.add_token_scores([float(-made.get(t, 1e5 + i)) for i, t in enumerate(texts)])
            writer.add_bos_token_id(model["vocab"]["<s>"])
            writer.add_unk_token_id(model["vocab"]["<unk>"])
        else:
            writer.add_tokenizer_pre(PRE[name])
            writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in model["merges"]])
            bos = [i for i, t in added.items() if t["content"] in ("<|begin_of_text|>", "<|endoftext|>")]
            writer.add_bos_token_id(bos[0])
            writer.add_eos_token_id(bos[0])
        writer.add_tensor("token_embd.weight", np.zeros((size, 16), dtype=np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
