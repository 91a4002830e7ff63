"""Makes the encoder-decoder models of this folder: random checkpoints, Optimum's exports of them, and
what transformers computes from the same checkpoints.

    python crossed.py CHECKPOINTS

Needs the packages of requirements-optimum.txt. golden/crossed.json says which tokens; golden/NAME.f32
holds the logits, little-endian float32: [decoder, vocabulary] after each of the decoder's tokens, then
[branch, vocabulary] after the branch's, which follow the first `at` of the decoder's. As in golden.py
the same logits are computed in float64 and through transformers' own cache, and compared.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from optimum.exporters.onnx import main_export
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel, MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from checkpoints import VOCAB, spread, tokenizer

AT, BRANCH, LENGTH, INPUT, K, POSITIONS = 13, 5, 22, 17, 4, 64
T5 = dict(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=3, relative_attention_num_buckets=8,
          relative_attention_max_distance=20, dropout_rate=0.0, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
BART = dict(vocab_size=VOCAB, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=40,
            max_position_embeddings=POSITIONS, dropout=0.0, pad_token_id=1, eos_token_id=2)

MODELS = {
    # the first T5: relu, tied and scaled embeddings
    "t5": (T5ForConditionalGeneration, T5Config(**T5, n_positions=POSITIONS, feed_forward_proj="relu", tie_word_embeddings=True)),
    # T5 v1.1, Flan-T5 and mT5: gated gelu, a head of its own; mT5 names no number of positions
    "mt5": (MT5ForConditionalGeneration, MT5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    # learned positions; the decoder begins with the end of sequence and a forced token
    "bart": (BartForConditionalGeneration, BartConfig(**BART, bos_token_id=0, decoder_start_token_id=2, forced_bos_token_id=0, forced_eos_token_id=None)),
    # positions from sines; the decoder begins with the padding
    "marian": (MarianMTModel, MarianConfig(**BART, decoder_start_token_id=1, forced_eos_token_id=None)),
}
KEPT = {"encoder_model.onnx", "decoder_model_merged.onnx", "config.json", "generation_config.json"}
SPLIT = (KEPT - {"decoder_model_merged.onnx"}) | {"decoder_model.onnx", "decoder_with_past_model.onnx"}


def export(checkpoint, folders):
    with tempfile.TemporaryDirectory() as tmp:
        main_export(checkpoint, output=tmp, task="text2text-generation-with-past", framework="pt", dtype="fp32", do_validation=False)
        for out, kept in folders.items():
            shutil.rmtree(out, ignore_errors=True)
            Path(out).mkdir()
            for name in kept:
                shutil.copy(Path(tmp) / name, out)
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(Path(checkpoint) / name, out)


@torch.no_grad()
def golden(folder, cls, source, text, branch):
    model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor([source])
    mask = torch.ones_like(ids)

    def whole(tokens, m=model):
        return m(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()

    want, other = whole(text), whole(text[:AT] + branch)[AT:]
    states, cache, got = BaseModelOutput(model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state), None, []
    for t in text:
        out = model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=torch.tensor([[t]]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        got.append(out.logits[0].numpy())
    size = want.max() - want.min()
    off = {"token by token": np.abs(np.concatenate(got) - want).max() / size, "float64": np.abs(whole(text, model.to(torch.float64)) - want).max() / size}
    assert max(off.values()) < 4e-6, off
    print(Path(folder).name, f"range {size:.1f};", ", ".join(f"{k} {v:.1g}" for k, v in off.items()))
    return np.concatenate([want, other])


def main(checkpoints):
    rng = np.random.default_rng(12)
    draw = lambda n: rng.integers(3, VOCAB, n).tolist()
    index = {"at": AT, "k": K, "source": draw(INPUT), "text": draw(LENGTH), "branch": draw(BRANCH), "models": {}}
    for seed, (name, (cls, config)) in enumerate(MODELS.items()):
        torch.manual_seed(2000 + seed)
        model = cls(config).to(torch.float32).eval()
        spread(model)
        folder = Path(checkpoints) / name
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        tokenizer(folder)
        folders = {f"{name}-optimum": KEPT}
        if name in ("t5", "bart"):
            folders[f"{name}-optimum-split"] = SPLIT
        export(str(folder), folders)
        start = [config.decoder_start_token_id] + ([0] if name == "bart" else [])
        text = start + index["text"][len(start):]
        index["models"][name] = {"vocab": VOCAB, "start": start}
        golden(folder, cls, index["source"], text, index["branch"]).astype("<f4").tofile(f"golden/{name}.f32")
    Path("golden/crossed.json").write_text(json.dumps(index) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
