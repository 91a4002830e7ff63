"""What transformers computes of rotary embeddings, in golden/rotary.json.

    ATEN_CPU_CAPABILITY=default python make_rotary.py golden/rotary.json     (requirements.txt)

Each case has a configuration, the frequencies in float32, and the factor of cosines and sines. With
ATEN_CPU_CAPABILITY=default PyTorch takes powers from the C library, which rounds them correctly; its own vectorized
ones are off by one last bit at times.
"""

import json
import sys

import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
FACTORS = [1 + i * i / 37 for i in range(48)]
CASES = {  # base, head size, context, scaling
    "plain": (10000.0, 128, 4096, None),
    "plain, heads of 80": (10000.0, 80, 4096, None),
    "plain, heads of 96": (10000.0, 96, 4096, None),
    "plain, a large base": (1000000.0, 128, 32768, None),
    "linear": (10000.0, 128, 16384, {"rope_type": "linear", "factor": 3.0}),
    "llama3": (500000.0, 128, 131072, {"rope_type": "llama3", "factor": 8.0, **LLAMA3}),
    "llama3, small heads": (500000.0, 64, 131072, {"rope_type": "llama3", "factor": 32.0, **LLAMA3}),
    "yarn": (1000000.0, 128, 131072, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "yarn, not truncated": (1000000.0, 128, 98304, {"rope_type": "yarn", "factor": 3.0, "truncate": False, "beta_fast": 24.0, "original_max_position_embeddings": 32768}),
    "longrope": (10000.0, 96, 131072, {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS, "original_max_position_embeddings": 4096}),
}


def main(out):
    cases = {}
    for name, (base, size, context, scaling) in CASES.items():
        config = {"rope_theta": base, "head_dim": size, "hidden_size": 4 * size, "num_attention_heads": 4, "max_position_embeddings": context}
        if scaling:
            config["rope_scaling"] = scaling
        kind = Phi3Config if scaling and scaling["rope_type"] == "longrope" else LlamaConfig
        built = kind(**{k: dict(v) if isinstance(v, dict) else v for k, v in config.items()}, pad_token_id=None)
        if scaling:
            angles, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](built, "cpu")
        else:
            angles, magnitude = 1.0 / (base ** (torch.arange(0, size, 2, dtype=torch.int64).to(dtype=torch.float) / size)), 1.0
        cases[name] = {"config": config, "angles": angles.tolist(), "magnitude": magnitude}
    with open(out, "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "\n}\n")


main(sys.argv[1])
