"""transformers on PyTorch, its assisted generation among it: python peer_transformers.py PAIR [THREADS [DEVICE [TYPE]]]"""

import sys
import time

import torch
import transformers

import peer

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SAMPLING = {
    "greedy": dict(do_sample=False),
    "sample": dict(do_sample=True, temperature=1.0, top_k=0, top_p=1.0),
    "top50": dict(do_sample=True, temperature=1.0, top_k=50, top_p=1.0),
}


class Clock:
    """A streamer that keeps when tokens came; the first to come is the prompt."""

    def __init__(self):
        self.times, self.counts = [], []

    def put(self, tokens):
        self.times.append(time.perf_counter())
        self.counts.append(tokens.numel())

    def end(self):
        pass


class Server:
    def __init__(self, pair, threads, device="cpu", kind="float32"):
        torch.set_num_threads(threads)
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.device = device
        self.target, self.draft = (
            load(f"{pair}/hf/{name}", dtype=getattr(torch, kind)).eval().to(device) for name in ("target", "draft")
        )
        c = self.draft.generation_config
        c.num_assistant_tokens_schedule, c.assistant_confidence_threshold = "constant", 0.0

    @torch.no_grad()
    def generate(self, number, k, how, n, streamer=None):
        ids = torch.tensor([peer.prompt(number)], device=self.device)
        self.draft.generation_config.num_assistant_tokens = k
        assistant = dict(assistant_model=self.draft) if k else {}
        out = self.target.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, streamer=streamer, **assistant, **SAMPLING[how]
        )
        return out[0, peer.PROMPT :].tolist()

    def decode(self, precision, k, lanes, how, seconds):
        """Decoding one sequence after another; the clock runs from the first loop's end."""
        if lanes != "1":
            return self.batch(int(lanes), how, float(seconds))
        tokens, loops, spent, number = 0, 0, 0.0, 0
        while spent < float(seconds):
            clock = Clock()
            self.generate(number, int(k), how, peer.NEW + 2, clock)
            number += 1
            spent += clock.times[-1] - clock.times[1]
            tokens += sum(clock.counts[2:])
            loops += len(clock.counts) - 2
        return {"tokens_per_s": tokens / spent, "tokens_per_loop": tokens / loops}

    @torch.no_grad()
    def batch(self, lanes, how, seconds):
        """Sequences decoded together, without a draft: what NEW tokens take beyond two, prefill left out."""
        ids = torch.tensor([peer.prompt(i) for i in range(lanes)], device=self.device)

        def took(n):
            begin = time.perf_counter()
            self.target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, **SAMPLING[how])
            return time.perf_counter() - begin

        took(2)
        tokens, spent = 0, 0.0
        while spent < seconds:
            spent += max(took(peer.NEW + 2) - took(2), 1e-6)
            tokens += lanes * peer.NEW
        return {"tokens_per_s": tokens / spent, "tokens_per_loop": 1}

    def greedy(self, precision):
        return {"tokens": self.generate(0, 0, "greedy", 32)}

    def info(self):
        return {"system": "transformers", "transformers": transformers.__version__, "torch": torch.__version__}


def main():
    s = Server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2, *sys.argv[3:5])
    peer.serve({"info": s.info, "decode": s.decode, "greedy": s.greedy})


if __name__ == "__main__":
    main()
