"""Writes what transformers' beam search finds, for the Go tests to compare with.

    python make_golden.py OUT_DIR

OUT_DIR/tables.json.gz: small models whose logits are a table over length and last token, and what generate returns for
many settings of its beam search. OUT_DIR/demo.json.gz and translate.json.gz: the demo pair's target on minieval.parquet
and the translation pair's on sentences.parquet, with their tokens and scores.
"""

import gzip
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pyarrow.parquet as pq
import torch
from onnx import numpy_helper
from tokenizers import Tokenizer
from transformers import GenerationConfig, GenerationMixin, LlamaConfig, LlamaForCausalLM, PreTrainedConfig, PreTrainedModel, StoppingCriteria, StoppingCriteriaList, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput

HERE = Path(__file__).parent


class TableConfig(PreTrainedConfig):
    model_type = "table"


class Table(PreTrainedModel, GenerationMixin):
    """Logits that depend on the length and the last token: table[length][last]. (Were they the same at every length,
    sequences of the same transitions in another order would tie.)"""

    config_class = TableConfig
    main_input_name = "input_ids"
    _is_stateful = False

    def __init__(self, table):
        super().__init__(TableConfig(vocab_size=table.shape[-1]))
        self.table = torch.nn.Parameter(torch.tensor(table, dtype=torch.float32))

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
        return {"input_ids": input_ids}

    def forward(self, input_ids, attention_mask=None, **_):
        return CausalLMOutputWithPast(logits=self.table[torch.arange(1, input_ids.shape[1] + 1), input_ids])


class Stop(StoppingCriteria):
    """What ends in these tokens is done: what StopStringCriteria says of a text, without a tokenizer."""

    def __init__(self, stops, prompt):
        self.stops, self.prompt = stops, prompt

    def __call__(self, input_ids, scores, **_):
        return torch.tensor([any(ids[self.prompt:][-len(s):] == s for s in self.stops) for ids in input_ids.tolist()])


def found(out, prompt, eos, stops=()):
    """The returned sequences without what pads them, and their scores."""
    beams = []
    for tokens, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        tokens = tokens[prompt:]
        for i, t in enumerate(tokens):
            if t in eos or any(tokens[:i + 1][-len(s):] == s for s in stops):
                tokens = tokens[: i + 1]
                break
        beams.append({"tokens": tokens, "score": score})
    return beams


def tables():
    rng = np.random.default_rng(5)
    cases = []
    models = [np.round(rng.normal(size=(13, 9, 9)) * s, 5) for s in (1, 2.5)]
    for m, table in enumerate(models):
        model = Table(table).eval()
        grid = itertools.product((2, 3, 4), (0.0, 1.0, 2.0, -0.5), (False, True, "never"), ([8], [7, 8]), ({}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"min_new_tokens": 4}))
        for w, penalty, early, eos, more in grid:
            if more and (w != 3 or len(eos) == 2):
                continue
            prompt = rng.integers(0, 7, 3).tolist()
            ids = torch.tensor([prompt])
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), num_beams=w, num_return_sequences=w, length_penalty=penalty, early_stopping=early, eos_token_id=eos,
                pad_token_id=eos[0], max_new_tokens=9, do_sample=False, use_cache=False, return_dict_in_generate=True, output_scores=True, **more)
            cases.append({"model": m, "prompt": prompt, "beams": w, "length_penalty": penalty, "early_stopping": str(early).lower(), "eos": eos, **more, "found": found(out, 3, eos)})
    rng = np.random.default_rng(6)
    for m, table in enumerate(models):
        model = Table(table).eval()
        for w, penalty, early, eos, stops in itertools.product((2, 3, 4), (0.0, 1.0), (False, True, "never"), ([8], [7, 8]), ([[3]], [[1, 2], [5]], [[0, 0], [6, 4, 1]])):
            prompt = rng.integers(0, 7, 3).tolist()
            ids = torch.tensor([prompt])
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), num_beams=w, num_return_sequences=w, length_penalty=penalty, early_stopping=early, eos_token_id=eos,
                pad_token_id=eos[0], max_new_tokens=9, do_sample=False, use_cache=False, return_dict_in_generate=True, output_scores=True,
                stopping_criteria=StoppingCriteriaList([Stop(stops, 3)]))
            cases.append({"model": m, "prompt": prompt, "beams": w, "length_penalty": penalty, "early_stopping": str(early).lower(), "eos": eos, "stops": stops, "found": found(out, 3, eos, stops)})
    return {"tables": [t.tolist() for t in models], "max_new_tokens": 9, "cases": cases}


def demo(rows):
    folder = HERE.parent / "demo" / "target"
    config = LlamaConfig.from_pretrained(folder)
    config.dtype = torch.float32
    model = LlamaForCausalLM(config).eval()
    state = {}
    for t in onnx.load(folder / "model.onnx").graph.initializer:
        name, value = t.name.removesuffix(".half").replace(".attn.", ".self_attn.").replace(".MatMul.", "."), torch.tensor(numpy_helper.to_array(t)).float()
        if "qkv_proj" in name:
            q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
            for part, piece in zip("qkv", value.split([q, kv, kv], dim=1)):
                state[name.replace("qkv_proj", part + "_proj")] = piece.T.contiguous()
        elif name.endswith("_proj.weight"):
            state[name] = value.T.contiguous()
        elif "final_norm" in name or name.startswith("model.norm"):
            state["model.norm.weight"] = value
        elif name.endswith(".weight"):
            state[name] = value.T.contiguous() if "lm_head" in name else value
        elif "cache" not in name:
            print("left out:", name, tuple(value.shape))
    state["model.embed_tokens.weight"] = state["lm_head.weight"]  # they are one
    model.load_state_dict(state)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [tokenizer.encode(p).ids for p in pq.read_table(HERE.parent / "demo" / "minieval.parquet")["prompt"].to_pylist()[:rows]]
    return search(model, prompts, [0], 64)


class Encoder(torch.nn.Module):
    main_input_name = "input_ids"

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def forward(self, input_ids, attention_mask, return_dict=None, output_attentions=None, output_hidden_states=None):
        return BaseModelOutput(last_hidden_state=torch.tensor(self.graph.run(None, {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()})[0]))


class Exported(T5ForConditionalGeneration):
    """A T5 that computes with its exported graphs."""

    def __init__(self, folder):
        config = T5Config.from_pretrained(folder)
        super().__init__(config)
        self.graphs = [onnxruntime.InferenceSession(str(folder / name)) for name in ("encoder_model.onnx", "decoder_model_merged.onnx")]
        self.generation_config = GenerationConfig.from_pretrained(folder)

    def get_encoder(self, *_, **__):
        return Encoder(self.graphs[0])

    def forward(self, attention_mask, decoder_input_ids, encoder_outputs, **_):
        c, feed = self.config, {
            "input_ids": decoder_input_ids.numpy(), "encoder_attention_mask": attention_mask.numpy(),
            "encoder_hidden_states": encoder_outputs.last_hidden_state.numpy(), "use_cache_branch": np.array([False]),
        }
        for i in self.graphs[1].get_inputs():
            if i.name.startswith("past_key_values"):
                feed[i.name] = np.zeros((len(decoder_input_ids), c.num_heads, 1, c.d_kv), np.float32)
        return Seq2SeqLMOutput(logits=torch.tensor(self.graphs[1].run(["logits"], feed)[0]))


def translate(rows):
    folder = HERE.parent / "translate" / "target"
    model = Exported(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [tokenizer.encode(p).ids for p in pq.read_table(HERE.parent / "translate" / "sentences.parquet")["english"].to_pylist()[:rows]]
    return search(model, prompts, [model.config.eos_token_id], 48, encoder=True)


def search(model, prompts, eos, limit, encoder=False):
    w, rows = 4, []
    for n, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=w, num_return_sequences=w, length_penalty=1.0, early_stopping=False, eos_token_id=eos,
            pad_token_id=eos[0], max_new_tokens=limit, do_sample=False, use_cache=not encoder, return_dict_in_generate=True, output_scores=True)
        rows.append({"prompt": prompt, "found": found(out, 1 if encoder else len(prompt), eos)})
        print(n, rows[-1]["found"][0]["score"], flush=True)
    return {"beams": w, "length_penalty": 1.0, "early_stopping": "false", "max_new_tokens": limit, "rows": rows}


def write(path, value):
    data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(gzip.compress(data, 9, mtime=0))


@torch.no_grad()
def main(out):
    torch.manual_seed(0)
    out = Path(out)
    write(out / "tables.json.gz", tables())
    write(out / "demo.json.gz", demo(80))
    write(out / "translate.json.gz", translate(40))


if __name__ == "__main__":
    main(*sys.argv[1:])
