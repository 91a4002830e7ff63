"""Checks that an Optimum export agrees with the builder's export of the same weights.

    python check_optimum.py OPTIMUM_DIR BUILDER_DIR
"""

import sys

import numpy as np
import onnxruntime as ort
from evaluate import Model


def main(optimum, builder):
    gqa = Model(builder)
    ids = np.random.default_rng(3).integers(1, 2048, 24)
    want = gqa.forward(ids.tolist())
    s = ort.InferenceSession(f"{optimum}/model.onnx")
    print("inputs", [(i.name, i.shape) for i in s.get_inputs()][:5], "outputs", [(o.name, o.shape) for o in s.get_outputs()][:3])
    past = {i.name: np.zeros((1, gqa.heads, 0, gqa.size), np.float32) for i in s.get_inputs() if i.name.startswith("past")}
    got, at = [], 0
    for n in (16, 1, 1, 5, 1):
        feed = {"input_ids": ids[None, at:at + n], "attention_mask": np.ones((1, at + n), np.int64), "position_ids": np.arange(at, at + n)[None], **past}
        names = [o.name for o in s.get_outputs()]
        out = dict(zip(names, s.run(names, feed)))
        got.append(out["logits"][0])
        past = {k.replace("present", "past_key_values"): v for k, v in out.items() if k != "logits"}
        at += n
    apart = float(np.abs(np.concatenate(got) - want).max())
    assert apart < 1e-3, apart
    print(f"{optimum} agrees with {builder}: {apart:.2g} in {len(s.get_inputs())} inputs, {len(s.get_outputs())} outputs")


if __name__ == "__main__":
    main(*sys.argv[1:])
