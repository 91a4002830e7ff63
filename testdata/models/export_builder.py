"""Exports a checkpoint with onnxruntime-genai's model builder: GroupQueryAttention, shared buffers.

    python export_builder.py CHECKPOINT OUT_DIR PRECISION [EXECUTION_PROVIDER [KEY=VALUE ...]]

The builder writes external data. --inline OUT_DIR moves them into model.onnx.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

KEPT = {"model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json", "tokenizer_config.json"}


def main(checkpoint, out, precision, provider="cpu", *options):
    out = Path(out)
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", checkpoint, "-o", str(out), "-p", precision, "-e", provider, "-c", cache]
        if options:
            command += ["--extra_options", *options]
        subprocess.run(command, check=True)
    for f in out.iterdir():
        if f.name not in KEPT:
            f.unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(checkpoint) / name, out)


def inline(out):
    """Moves the external data into the model file."""
    path = Path(out) / "model.onnx"
    model = onnx.load(path)
    onnx.save(model, path)
    (Path(out) / "model.onnx.data").unlink()


if __name__ == "__main__":
    if sys.argv[1] == "--inline":
        inline(sys.argv[2])
    else:
        main(*sys.argv[1:])
