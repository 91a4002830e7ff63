"""Completions of other systems' speculative sampling, for submit certify --from:

    python certify_peers.py SYSTEM SETTING PAIR DATASET OUT.jsonl [--prompts N] [--samples N] [--tokens N] [--k N] [--seed N]

SYSTEM is transformers or genai, SETTING one of the settings below. PAIR is a folder with target and draft as
onnxruntime-genai's model builder exports them (testdata/demo); transformers gets the same weights, taken out of the
graphs. DATASET is a Parquet file with task_id and prompt. With --k 0 the target samples alone: the peer's own control.
"""

import argparse
import json
import tempfile
from pathlib import Path

from pyarrow import parquet
from tokenizers import Tokenizer

SETTINGS = {
    "top50": dict(temperature=1.0, top_k=50, top_p=1.0),  # transformers' default top-k
    "nucleus": dict(temperature=0.8, top_k=0, top_p=0.95),
    "plain": dict(temperature=1.0, top_k=0, top_p=1.0),
}


class Transformers:
    """Llama models with the weights of the exported graphs, in float32."""

    def __init__(self, pair, k):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        self.torch, self.k = torch, k
        torch.set_num_threads(1)
        self.target, self.draft = self.load(pair / "target"), self.load(pair / "draft")
        c = self.draft.generation_config
        c.num_assistant_tokens, c.num_assistant_tokens_schedule, c.assistant_confidence_threshold = k, "constant", 0.0

    def load(self, folder):
        import numpy as np
        import onnx
        import transformers

        config = transformers.AutoConfig.from_pretrained(folder)
        config.dtype = "float32"
        model = transformers.LlamaForCausalLM(config).to(self.torch.float32).eval()
        raw = {i.name.removesuffix(".half"): np.array(onnx.numpy_helper.to_array(i), np.float32) for i in onnx.load(folder / "model.onnx").graph.initializer}
        heads, head = config.num_attention_heads, config.head_dim
        keys, last = config.num_key_value_heads * head, config.num_hidden_layers
        state = {"lm_head.weight": raw["lm_head.MatMul.weight"].T, "model.embed_tokens.weight": raw["lm_head.MatMul.weight"].T}
        state["model.norm.weight"] = raw[f"model.layers.{last}.final_norm_layernorm.weight"]
        for i in range(last):
            name = f"model.layers.{i}"
            q, k, v = np.split(raw[f"{name}.attn.qkv_proj.MatMul.weight"].T, [heads * head, heads * head + keys])
            state |= {f"{name}.self_attn.{p}_proj.weight": w for p, w in (("q", q), ("k", k), ("v", v))}
            state[f"{name}.self_attn.o_proj.weight"] = raw[f"{name}.attn.o_proj.MatMul.weight"].T
            for p in ("gate", "up", "down"):
                state[f"{name}.mlp.{p}_proj.weight"] = raw[f"{name}.mlp.{p}_proj.MatMul.weight"].T
            for p in ("input_layernorm", "post_attention_layernorm"):
                state[f"{name}.{p}.weight"] = raw[f"{name}.{p}.weight"]
        model.load_state_dict({key: self.torch.from_numpy(np.ascontiguousarray(w)) for key, w in state.items()}, strict=True)
        return model

    def complete(self, prompt, n, setting, seed):
        self.torch.manual_seed(seed)
        ids = self.torch.tensor([prompt])
        assistant = dict(assistant_model=self.draft) if self.k else {}
        with self.torch.no_grad():
            out = self.target.generate(ids, attention_mask=self.torch.ones_like(ids), do_sample=True, max_new_tokens=n, **setting, **assistant)
        return out[0, len(prompt) :].tolist()


class GenAI:
    """onnxruntime-genai, its speculative decoding among it."""

    def __init__(self, pair, k):
        import onnxruntime_genai as og

        self.og, self.k, self.folder = og, k, tempfile.TemporaryDirectory()
        configs = {name: json.loads((pair / name / "genai_config.json").read_text()) for name in ("target", "draft")}
        for name, config in configs.items():
            (Path(self.folder.name) / name).symlink_to((pair / name).resolve())
            block = config["model"]["decoder"]
            block["filename"] = f"{name}/model.onnx"
            block["session_options"]["intra_op_num_threads"] = 1
        if k:
            configs["target"]["model"]["draft"] = configs["draft"]["model"]["decoder"]
        (Path(self.folder.name) / "genai_config.json").write_text(json.dumps(configs["target"]))
        self.model = og.Model(self.folder.name)
        self.eos = configs["target"]["model"]["eos_token_id"]

    def complete(self, prompt, n, setting, seed):
        params = self.og.GeneratorParams(self.model)
        params.set_search_options(do_sample=True, random_seed=seed, max_length=len(prompt) + n + 2 * self.k, **setting)
        if self.k:
            params.set_speculative_options(max_draft_tokens=self.k, min_adaptive_k=0)
        g = self.og.Generator(self.model, params)
        g.append_tokens(prompt)
        while not g.is_done() and len(g.get_sequence(0)) < len(prompt) + n:
            g.generate_next_token()
        tokens = [int(t) for t in g.get_sequence(0)[len(prompt) :]][:n]
        return tokens[: tokens.index(self.eos) + 1] if self.eos in tokens else tokens


def main():
    a = argparse.ArgumentParser()
    a.add_argument("system", choices=["transformers", "genai"])
    a.add_argument("setting", choices=SETTINGS)
    a.add_argument("pair", type=Path)
    a.add_argument("dataset", type=Path)
    a.add_argument("out", type=Path)
    for name, default in (("prompts", 8), ("samples", 300), ("tokens", 12), ("k", 4), ("seed", 1)):
        a.add_argument("--" + name, type=int, default=default)
    a = a.parse_args()
    rows = parquet.read_table(a.dataset, columns=["task_id", "prompt"]).to_pylist()
    rows = [rows[i * len(rows) // a.prompts] for i in range(a.prompts)]
    tokenizer = Tokenizer.from_file(str(a.pair / "target" / "tokenizer.json"))
    system = {"transformers": Transformers, "genai": GenAI}[a.system](a.pair, a.k)
    with a.out.open("w") as out:
        for i, row in enumerate(rows):
            prompt = tokenizer.encode(row["prompt"]).ids
            for s in range(a.samples):
                tokens = system.complete(prompt, a.tokens, SETTINGS[a.setting], a.seed * 1_000_003 + i * 10_007 + s)
                out.write(json.dumps({"task_id": row["task_id"], "tokens": tokens}) + "\n")


if __name__ == "__main__":
    main()
