"""Leaves a model's graph and drops its weights: python strip_weights.py DIR

For exports that are refused by their graph alone, so that nobody reads the weights.
"""

import sys
from pathlib import Path

import onnx


def main(folder):
    path = Path(folder) / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    if not (path.parent / "model.onnx.data").exists():
        onnx.save(model, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    (path.parent / "model.onnx.data").unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
