"""Makes files with tensors of all formats, and what the packages gguf and safetensors read from them.

    python make_formats.py DIR     (requirements.txt)

DIR/formats.gguf and DIR/formats.safetensors, each with NAME.f32 of every tensor behind each other in formats.f32,
in the order of their names. Blocks of few bits are random bytes with scales that are numbers.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

BLOCKS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}


def main(out):
    out = Path(out)
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(out / "formats.gguf", "formats")
    for i, key in enumerate(["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]):
        getattr(writer, f"add_{key}")(f"test.{key}", 100 + i if key[0] == "u" else -100 - i)
    writer.add_float32("test.float32", 0.5)
    writer.add_float64("test.float64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "Grüße")
    writer.add_array("test.strings", ["a", "", "ü"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.5])
    want = {}
    for name, scales in BLOCKS.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (2, 512 // elements * size), dtype=np.uint8)
        for at in scales:
            scale = rng.normal(size=(2, 512 // elements)).astype(np.float16).view(np.uint8).reshape(2, -1, 2)
            for j in range(2):
                data[:, at + j::size] = scale[:, :, j]
        writer.add_tensor(name, data, raw_dtype=kind)
        want[name] = gguf.quants.dequantize(data, kind)
    floats = rng.normal(size=(3, 5)).astype(np.float32)
    writer.add_tensor("F32", floats)
    writer.add_tensor("F16", floats.astype(np.float16))
    want |= {"F32": floats, "F16": floats.astype(np.float16).astype(np.float32)}
    bf16 = torch.from_numpy(floats).to(torch.bfloat16)
    writer.add_tensor("BF16", bf16.view(torch.uint8).numpy().reshape(3, 10), raw_dtype=gguf.GGMLQuantizationType.BF16)
    want["BF16"] = bf16.to(torch.float32).numpy()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = {t.name: t for t in gguf.GGUFReader(out / "formats.gguf").tensors}
    assert sorted(read) == sorted(want)
    np.concatenate([want[n].ravel() for n in sorted(want)]).astype("<f4").tofile(out / "formats.gguf.f32")

    halves = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)[::37].clone()
    eights = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn).clone()
    tensors = {
        "f32": torch.from_numpy(floats), "f16": halves, "bf16": bf16, "f8": eights.reshape(16, 16),
        "mask": torch.ones(4, 4, dtype=torch.bool), "one": torch.tensor(2.5),
    }
    save_file(tensors, out / "formats.safetensors", metadata={"format": "pt"})
    read = load_file(out / "formats.safetensors")
    np.concatenate([read[n].to(torch.float32).numpy().ravel() for n in sorted(read) if n != "mask"]).astype("<f4").tofile(out / "formats.safetensors.f32")


if __name__ == "__main__":
    main(*sys.argv[1:])
