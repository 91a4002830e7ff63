"""Exports a checkpoint with Optimum: growing caches (past_key_values.N.*, present.N.*), float32.

    python export_optimum.py CHECKPOINT OUT_DIR [--eager | --no-past | --int8]

--eager exports the attention that transformers computes with plain operators, as
Gemma 2 needs, whose caps torch's own attention leaves out; --no-past leaves the
caches out; --int8 quantizes the exported weights dynamically
(onnxruntime.quantization).
"""

import shutil
import sys
import tempfile
from pathlib import Path

from onnxruntime.quantization import QuantType, quantize_dynamic
from optimum.exporters.onnx import main_export, onnx_export_from_model
from transformers import AutoModelForCausalLM

KEPT = {"model.onnx", "model.onnx.data", "model.onnx_data", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


def main(checkpoint, out, *flags):
    out = Path(out)
    shutil.rmtree(out, ignore_errors=True)
    task = "text-generation" if "--no-past" in flags else "text-generation-with-past"
    if "--eager" in flags:
        onnx_export_from_model(AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager"), out, task=task)
    else:
        main_export(checkpoint, output=out, task=task, framework="pt", dtype="fp32", do_validation=True)
    if "--int8" in flags:
        with tempfile.TemporaryDirectory() as tmp:
            quantized = Path(tmp) / "model.onnx"
            quantize_dynamic(out / "model.onnx", quantized, weight_type=QuantType.QInt8)
            shutil.copy(quantized, out / "model.onnx")
    for f in out.iterdir():
        if f.name not in KEPT:
            f.unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(checkpoint) / name, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
