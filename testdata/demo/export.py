"""Exports a trained model to ONNX with onnxruntime-genai's model builder (GQA, fp32, CPU).

    python export.py MODEL_DIR TOKENIZER_DIR OUT_DIR [--check]

The weights are rounded to fp16 first. The builder's fp32 graph then gets them
back in half precision, each followed by a Cast that ONNX Runtime folds when the
session loads: the file is half as large and computes exactly the same.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from transformers import LlamaForCausalLM

SMALL = 1024  # initializers with fewer elements stay as they are


def save_checkpoint(src, tokenizer, dst):
    """The model in Hugging Face form with half-precision weights, its tokenizer beside it."""
    model = LlamaForCausalLM.from_pretrained(src, dtype=torch.float32).half()
    model.save_pretrained(dst)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(tokenizer) / name, dst)


def halve(path, out):
    """Writes the model with its large float initializers as fp16, each behind a Cast; all in one file."""
    model = onnx.load(path)
    graph = model.graph
    casts = []
    for i, t in enumerate(graph.initializer):
        if t.data_type != TensorProto.FLOAT or int(np.prod(t.dims)) < SMALL:
            continue
        full = numpy_helper.to_array(t)
        half = full.astype(np.float16)
        if not np.array_equal(half.astype(np.float32), full):
            continue  # the rotary tables, which were never rounded
        name = t.name
        graph.initializer[i].CopyFrom(numpy_helper.from_array(half, name + ".half"))
        casts.append(helper.make_node("Cast", [name + ".half"], [name], name=name + ".cast", to=TensorProto.FLOAT))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(casts + nodes)
    onnx.save(model, out)
    return len(casts)


def export(src, tokenizer, out):
    out = Path(out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as tmp:
        hf, full = Path(tmp) / "hf", Path(tmp) / "onnx"
        save_checkpoint(src, tokenizer, hf)
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", hf, "-o", full, "-p", "fp32", "-e", "cpu", "-c", Path(tmp) / "cache"], check=True)
        n = halve(full / "model.onnx", out / "model.onnx")
        for name in ("genai_config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(full / name if name == "genai_config.json" else Path(tokenizer) / name, out)
        shutil.copy(hf / "config.json", out)
        return n, full


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    a = ap.parse_args()
    n, _ = export(a.model, a.tokenizer, a.out)
    size = sum(f.stat().st_size for f in Path(a.out).iterdir())
    print(json.dumps({"out": a.out, "halved": n, "bytes": size}))


if __name__ == "__main__":
    main()
