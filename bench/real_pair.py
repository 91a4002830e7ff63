"""Makes what is missing in the folder of a real pair: prompts.json, the texts as tokens; Q4_0 files beside the others.

usage: real_pair.py PAIR PROMPTS
"""

import json
import sys
from pathlib import Path

import llama_cpp as l
import tokenizers


def prompts(path):
    """The column prompt of a JSON Lines or a Parquet file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=["prompt"])["prompt"].to_pylist()
    return [json.loads(line)["prompt"] for line in path.read_text().splitlines() if line]


def main(pair, source):
    tokenizer = tokenizers.Tokenizer.from_file(str(pair / "onnx/target-int4/tokenizer.json"))
    texts = [tokenizer.encode(text, add_special_tokens=True).ids for text in prompts(source)]
    (pair / "prompts.json").write_text(json.dumps(texts))
    for name in "target", "draft":
        path = pair / "gguf" / f"{name}-q4_0.gguf"
        if path.exists():
            continue
        p = l.llama_model_quantize_default_params()
        p.ftype, p.allow_requantize, p.pure = l.LLAMA_FTYPE_MOSTLY_Q4_0, True, True
        part = path.with_suffix(".part")
        if l.llama_model_quantize(str(pair / "gguf" / f"{name}-q4_k_m.gguf").encode(), str(part).encode(), p) != 0:
            raise SystemExit(f"real_pair: {path} could not be made")
        part.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
