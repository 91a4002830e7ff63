"""Exports a trained model with Optimum (growing caches: past_key_values.N.*, present.N.*, position_ids), fp32.

    python export_optimum.py MODEL_DIR TOKENIZER_DIR OUT_DIR

Needs the older transformers of requirements-optimum.txt. Weights are rounded to
fp16 first, as in export.py, so that both exports are of the same model.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from optimum.exporters.onnx import main_export
from transformers import LlamaConfig, LlamaForCausalLM


def main(src, tokenizer, out):
    src, out = Path(src), Path(out)
    shutil.rmtree(out, ignore_errors=True)
    cfg = json.loads((src / "config.json").read_text())
    theta = cfg.pop("rope_parameters", None)  # transformers 5's name for what 4 calls rope_theta
    if theta:
        cfg["rope_theta"] = theta["rope_theta"]
    with tempfile.TemporaryDirectory() as tmp:
        from safetensors.torch import load_file
        weights = {k: v.half().float() for k, v in load_file(src / "model.safetensors").items()}
        model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in cfg.items() if k not in ("dtype", "transformers_version", "architectures", "model_type")}))
        missing, unexpected = model.load_state_dict(weights, strict=False)
        model.tie_weights()
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise SystemExit(f"weights do not fit: missing {missing}, unexpected {unexpected}")
        model.to(torch.float32).save_pretrained(tmp)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(tokenizer) / name, tmp)
        main_export(tmp, output=out, task="text-generation-with-past", framework="pt", dtype="fp32", do_validation=True)
    for f in out.iterdir():
        if f.name not in ("model.onnx", "model.onnx.data", "config.json", "tokenizer.json", "tokenizer_config.json"):
            f.unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(tokenizer) / name, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
