"""transformers on PyTorch, its assisted generation among it: python peer_transformers.py PAIR [THREADS]"""

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
    def __init__(self, pair, threads):
        torch.set_num_threads(threads)
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.target, self.draft = (load(f"{pair}/hf/{name}", dtype=torch.float32).eval() for name in ("target", "draft"))
        c = self.draft.generation_config
        c.num_assistant_tokens_schedule, c.assistant_confidence_threshold = "constant", 0.0

    @torch.no_grad()
    def generate(self, number, k, how, n, streamer=None):
        ids = torch.tensor([peer.prompt(number)])
        self.draft.generation_config.num_assistant_tokens = k
        assistant = dict(assistant_model=self.draft) if k else {}
        out = self.target.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, streamer=streamer, **assistant, **SAMPLING[how]
        )
        return out[0, peer.PROMPT :].tolist()

    def decode(self, precision, k, lanes, how, seconds):
        """Decoding one sequence after another; the clock runs from the first loop's end."""
        assert precision == "fp32" and lanes == "1"
        tokens, loops, spent, number = 0, 0, 0.0, 0
        while spent < float(seconds):
            clock = Clock()
            self.generate(number, int(k), how, peer.NEW + 2, clock)
            number += 1
            spent += clock.times[-1] - clock.times[1]
            tokens += sum(clock.counts[2:])
            loops += len(clock.counts) - 2
        return {"tokens_per_s": tokens / spent, "tokens_per_loop": tokens / loops}

    def greedy(self, precision):
        return {"tokens": self.generate(0, 0, "greedy", 32)}

    def info(self):
        return {"system": "transformers", "transformers": transformers.__version__, "torch": torch.__version__}


def main():
    s = Server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    peer.serve({"info": s.info, "decode": s.decode, "greedy": s.greedy})


if __name__ == "__main__":
    main()
