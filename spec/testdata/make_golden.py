"""Makes chain.json.gz: what Hugging Face transformers makes of random logits.

    python make_golden.py      # versions: requirements.txt

The processors and their order are not listed here: they are what
GenerationMixin._get_logits_processor returns for a GenerationConfig. Those
before the temperature run in float32, as generate runs them; the temperature
and the truncations run on the same numbers in float64, so that the file holds
the law itself and not one way of rounding it. Frequency and presence penalty,
which transformers lacks, go in as a processor of the caller's, by the formula
of OpenAI's interface over the generated tokens.

Logits are multiples of 1/32, so that ties are frequent. Where transformers
leaves a result to the order of a sort, or to the last bit of a sum (the
boundary of a nucleus), the case is drawn again.
"""

import gzip
import json
import pathlib

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation import logits_process as lp

WARPERS = (lp.TemperatureLogitsWarper, lp.TopKLogitsWarper, lp.TopPLogitsWarper, lp.MinPLogitsWarper)
CASES = 240
EOS = [1, 2]


class Additive(lp.LogitsProcessor):
    """Frequency and presence penalty over the tokens behind the prompt."""

    def __init__(self, prompt, frequency, presence):
        self.prompt, self.frequency, self.presence = prompt, frequency, presence

    def __call__(self, input_ids, scores):
        counts = torch.zeros_like(scores)
        made = input_ids[:, self.prompt :]
        counts.scatter_add_(1, made, torch.ones_like(made, dtype=scores.dtype))
        scores = scores - self.frequency * counts
        return scores - self.presence * (counts > 0)


def draw(rng):
    """One case: settings, sequence, logits."""
    vocab = int(rng.choice([5, 61, 257, 600]))

    def maybe(chance, value):
        return value() if rng.random() < chance else None

    settings = {
        "temperature": float(rng.choice([0, 0.3, 0.7, 1, 1.5])),
        "top_k": maybe(0.5, lambda: int(rng.choice([1, 2, 20, 50]))),
        "top_p": maybe(0.5, lambda: float(rng.choice([0.1, 0.5, 0.8, 0.95, 0.999]))),
        "min_p": maybe(0.4, lambda: float(rng.choice([0.01, 0.1, 0.5]))),
        "repetition_penalty": maybe(0.4, lambda: float(rng.choice([0.8, 1.1, 1.3]))),
        "presence_penalty": maybe(0.3, lambda: float(rng.choice([-0.5, 0.3, 1.5]))),
        "frequency_penalty": maybe(0.3, lambda: float(rng.choice([-0.2, 0.4, 1]))),
        "no_repeat_ngram_size": maybe(0.4, lambda: int(rng.choice([1, 2, 3, 4]))),
        "min_new_tokens": maybe(0.4, lambda: int(rng.choice([1, 6, 40]))),
        "logit_bias": maybe(0.3, lambda: {int(x): float(rng.choice([-100, -1.3, 0.7, 5])) for x in rng.choice(vocab, 3, replace=False)}),
        "forbidden_tokens": maybe(0.3, lambda: sorted(int(x) for x in rng.choice(vocab, 2, replace=False))),
    }
    settings = {k: v for k, v in settings.items() if v is not None}
    alphabet = int(rng.choice([3, vocab]))  # few different tokens: n-grams recur
    tokens = [int(x) for x in rng.integers(0, min(alphabet, vocab), rng.integers(1, 40))]
    prompt = int(rng.integers(1, len(tokens) + 1))
    logits = np.round(rng.normal(0, rng.choice([0.5, 2, 4]), vocab) * 32).astype(int)
    return settings, tokens, prompt, logits


def processors(model, s, prompt):
    """What generate runs, split at the temperature."""
    config = GenerationConfig(
        do_sample=s["temperature"] > 0,
        temperature=s["temperature"] or 1.0,
        top_k=s.get("top_k", 0),
        top_p=s.get("top_p", 1.0),
        min_p=s.get("min_p"),
        repetition_penalty=s.get("repetition_penalty"),
        no_repeat_ngram_size=s.get("no_repeat_ngram_size"),
        min_new_tokens=s.get("min_new_tokens"),
        sequence_bias={(k,): v for k, v in s["logit_bias"].items()} if "logit_bias" in s else None,
        suppress_tokens=s.get("forbidden_tokens"),
        eos_token_id=EOS,
    )
    config._eos_token_tensor = torch.tensor(EOS)
    own = lp.LogitsProcessorList()
    if "frequency_penalty" in s or "presence_penalty" in s:
        own.append(Additive(prompt, s.get("frequency_penalty", 0.0), s.get("presence_penalty", 0.0)))
    every = model._get_logits_processor(config, input_ids_seq_length=prompt, logits_processor=own, device="cpu")
    first = next((i for i, p in enumerate(every) if isinstance(p, WARPERS)), len(every))
    assert all(isinstance(p, WARPERS) for p in every[first:])
    return every[:first], every[first:]


def ambiguous(scores, top_p):
    """Whether the nucleus of these scores hangs on a tie or a rounding."""
    p = torch.softmax(scores, -1)[0].sort(descending=True).values
    before = torch.cumsum(p, 0) - p
    if (torch.abs(before - top_p) < 1e-6).any():
        return True
    kept = int((before < top_p).sum())
    return kept < len(p) and bool(p[kept] == p[kept - 1])


def main():
    rng = np.random.default_rng(20240302)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    )
    cases = []
    while len(cases) < CASES:
        settings, tokens, prompt, logits = draw(rng)
        before, warpers = processors(model, settings, prompt)
        ids = torch.tensor([tokens])
        scores = torch.tensor(logits / 32, dtype=torch.float32)[None]
        for p in before:
            scores = p(ids, scores)
        scores = scores.double()
        if torch.isinf(scores).all():
            continue  # nothing is left: an error, in draftmill
        if settings["temperature"] == 0:
            law = torch.zeros_like(scores)
            law[0, (scores[0] == scores.max()).nonzero()[0]] = 1  # draftmill's choice among equals
        else:
            bad = False
            for w in warpers:
                bad = bad or isinstance(w, lp.TopPLogitsWarper) and ambiguous(scores, settings["top_p"])
                scores = w(ids, scores)
            if bad:
                continue
            law = torch.softmax(scores, -1)
        case = {"sampling": settings, "tokens": tokens, "prompt": prompt, "logits": logits.tolist()}
        kept = law[0].nonzero()[:, 0].tolist()
        case["ids"] = kept
        case["law"] = [float(f"{law[0, i]:.9e}") for i in kept]
        cases.append(case)
    text = json.dumps({"eos": EOS, "scale": 32, "cases": cases}, separators=(",", ":"))
    path = pathlib.Path(__file__).with_name("chain.json.gz")
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
