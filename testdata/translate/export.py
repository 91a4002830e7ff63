"""Exports a checkpoint with Optimum, its weights in 8 bits, and writes what transformers computes.

    python export.py CHECKPOINT TOKENIZER_DIR OUT_DIR SENTENCES.parquet

The weights of all matrices are first rounded to 8 bits with a scale for each row; what is exported, and
what golden.json is of, is the rounded model in float32. In the files such a weight is its int8 numbers
behind a Cast and a Mul, which ONNX Runtime folds when the session loads: the logits are those of the
rounded model.

golden.json: for some of the sentences the ids of the input, transformers' greedy output with its start
token, and the logits of a few positions (7 digits).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pyarrow.parquet
import torch
from onnx import TensorProto, helper, numpy_helper
from optimum.exporters.onnx import main_export
from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration

GOLDEN, LENGTH = 4, 64
KEPT = ["encoder_model.onnx", "decoder_model_merged.onnx", "config.json", "generation_config.json"]


def round_weights(model):
    """Rounds, and returns the int8 numbers and scales by the bytes of a rounded matrix, and of its transpose."""
    known = {}
    for p in model.parameters():
        if p.ndim == 2 and p.numel() > 1024:
            w = p.detach().numpy()
            s = np.abs(w).max(axis=1, keepdims=True) / np.float32(127)
            q = np.round(w / np.where(s == 0, 1, s)).astype(np.int8)
            w = q.astype(np.float32) * s
            known[w.tobytes()] = q, s
            known[np.ascontiguousarray(w.T).tobytes()] = np.ascontiguousarray(q.T), np.ascontiguousarray(s.T)
            p.data = torch.from_numpy(w)
    return known


def pack(path, known):
    model = onnx.load(path)
    graph, nodes, kept = model.graph, [], []
    for t in graph.initializer:
        found = known.get(numpy_helper.to_array(t).tobytes())
        if found is None:
            kept.append(t)
            continue
        q, s = found
        kept += [numpy_helper.from_array(q, t.name + ".int8"), numpy_helper.from_array(s, t.name + ".scale")]
        nodes += [helper.make_node("Cast", [t.name + ".int8"], [t.name + ".cast"], to=TensorProto.FLOAT),
                  helper.make_node("Mul", [t.name + ".cast", t.name + ".scale"], [t.name])]
    rest = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes + rest)
    onnx.save(model, path)
    print(Path(path).name, len(nodes) // 2, "matrices packed,", Path(path).stat().st_size, "bytes")


@torch.no_grad()
def golden(model, tok, sentences):
    rows = []
    for text in sentences[:GOLDEN]:
        ids = tok.encode(text).ids
        source = torch.tensor([ids])
        mask = torch.ones_like(source)
        # Without a cache: transformers' is made for as many decoder layers as the encoder has.
        out = model.generate(source, attention_mask=mask, max_new_tokens=LENGTH, do_sample=False, num_beams=1, use_cache=False)[0].tolist()
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=torch.tensor([out[:-1]]), use_cache=False).logits[0]
        at = [0, len(out) - 2]
        rows.append({"text": text, "ids": ids, "output": out, "german": tok.decode(out), "at": at, "logits": [[float(f"{x:.7g}") for x in logits[i].tolist()] for i in at]})
    return rows


def main(checkpoint, tokenizer, out, sentences):
    out = Path(out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    torch.set_num_threads(2)
    model = T5ForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    known = round_weights(model)
    with tempfile.TemporaryDirectory() as tmp:
        model.save_pretrained(Path(tmp) / "rounded")
        main_export(str(Path(tmp) / "rounded"), output=Path(tmp) / "onnx", task="text2text-generation-with-past", framework="pt", dtype="fp32", do_validation=False)
        for name in KEPT:
            shutil.copy(Path(tmp) / "onnx" / name, out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(tokenizer) / name, out)
    for name in KEPT[:2]:
        pack(out / name, known)
    tok = Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
    rows = golden(model, tok, pyarrow.parquet.read_table(sentences)["english"].to_pylist())
    (out / "golden.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")
    for r in rows[:3]:
        print(r["text"], "->", r["german"])


if __name__ == "__main__":
    main(*sys.argv[1:])
