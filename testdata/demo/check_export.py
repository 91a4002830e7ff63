"""Checks an export: python check_export.py DIR [DIR ...] (each DIR with model.onnx and genai_config.json)

- the file with half-precision weights gives the logits of the same graph with those weights stored in fp32, bit for bit;
- it takes as long per forward (printed, for 1 and 5 tokens);
- five tokens in one forward give the logits of five forwards of one, with past and present in one buffer;
- a rewind after wrong tokens gives what never having seen them gives.
"""

import sys
import tempfile
from pathlib import Path
from shutil import copy

import numpy as np
import onnx
from evaluate import Model, forward_time
from onnx import TensorProto, numpy_helper


def widened(folder, out):
    """A copy of the model with its weights in fp32 and no Cast in front of them."""
    model = onnx.load(folder / "model.onnx")
    halves = {t.name: t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT16}
    keep = []
    for node in model.graph.node:
        if node.op_type == "Cast" and node.input[0] in halves:
            t = halves[node.input[0]]
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), node.output[0]))
        else:
            keep.append(node)
    del model.graph.node[:]
    model.graph.node.extend(keep)
    onnx.save(model, out / "model.onnx")
    copy(folder / "genai_config.json", out)
    return len(halves)


def check(folder):
    rng = np.random.default_rng(3)
    ids = rng.integers(1, 2048, 48).tolist()
    half = Model(folder)
    with tempfile.TemporaryDirectory() as tmp:
        n = widened(folder, Path(tmp))
        full = Model(tmp)
        assert n > 0 and np.array_equal(half.forward(ids), full.forward(ids)), "fp16 storage changed the logits"
        times = {s: (forward_time(half, s), forward_time(full, s), forward_time(half, s), forward_time(full, s)) for s in (1, 5)}
    half.reset()
    half.forward(ids[:40])
    five = half.forward(ids[40:45])
    assert five.shape == (5, 2048), "logits are not given for every position"
    half.reset()
    half.forward(ids[:40])
    ones = np.concatenate([half.forward([t]) for t in ids[40:45]])
    apart = float(np.abs(five - ones).max())
    assert apart < 1e-3, apart
    half.length = 40
    half.forward([9, 9, 9, 9, 9])
    half.length = 40
    again = half.forward(ids[40:45])
    assert np.array_equal(again, five), "a rewind left something behind"
    print(folder, f"{n} halved; S=5 against 5 x S=1: {apart:.2g}; ms (half, fp32, half, fp32): {times}")


if __name__ == "__main__":
    for d in sys.argv[1:]:
        check(Path(d))
