"""llama.cpp, through the low-level binding of llama-cpp-python: python peer_llamacpp.py PAIR [THREADS]"""

import ctypes
import sys
import time

import llama_cpp as l

import peer

FILES = {"fp32": "f32", "int4": "q4_0", "q4km": "q4_k_m"}
LANES = 16


class Model:
    """A model and one context that holds up to LANES sequences."""

    def __init__(self, path, threads):
        self.model = l.llama_model_load_from_file(path.encode(), l.llama_model_default_params())
        p = l.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = 256 * LANES, 512, 512, LANES
        p.n_threads = p.n_threads_batch = threads
        p.type_k = p.type_v = l.GGML_TYPE_F32 if path.endswith("f32.gguf") else l.GGML_TYPE_F16
        p.kv_unified = True  # any sequence may be longer than its share
        p.no_perf = True
        self.context = l.llama_init_from_model(self.model, p)
        self.memory = l.llama_get_memory(self.context)
        self.batch = l.llama_batch_init(512, 0, 1)
        self.samplers = {
            "greedy": self.chain(l.llama_sampler_init_greedy()),
            "sample": self.chain(l.llama_sampler_init_dist(1)),
            "nucleus": self.chain(l.llama_sampler_init_top_p(0.95, 1), l.llama_sampler_init_temp(0.8), l.llama_sampler_init_dist(1)),
        }

    def chain(self, *samplers):
        chain = l.llama_sampler_chain_init(l.llama_sampler_chain_default_params())
        for s in samplers:
            l.llama_sampler_chain_add(chain, s)
        return chain

    def feed(self, tokens, past, sequence=0, logits="last", more=False):
        """Adds the tokens to the batch behind past others, and runs it unless there are more to come."""
        b = self.batch
        for i, token in enumerate(tokens):
            n = b.n_tokens
            b.token[n], b.pos[n], b.n_seq_id[n], b.seq_id[n][0] = token, past + i, 1, sequence
            b.logits[n] = logits == "all" or i == len(tokens) - 1
            b.n_tokens += 1
        if not more:
            if l.llama_decode(self.context, b) != 0:
                raise RuntimeError("llama_decode")
            l.llama_get_logits(self.context)  # waits
            b.n_tokens = 0

    def fill(self, sequences, past):
        l.llama_memory_clear(self.memory, True)
        for s in range(sequences):
            self.feed(peer.prompt(s, past), 0, s)

    def rewind(self, past, sequence=0):
        l.llama_memory_seq_rm(self.memory, sequence, past, -1)


class Server:
    def __init__(self, pair, threads):
        self.pair, self.threads, self.models = pair, threads, {}

    def open(self, name):
        name, precision = name.split("-")
        path = f"{self.pair}/gguf/{name}-{FILES[precision]}.gguf"
        if path not in self.models:
            self.models[path] = Model(path, self.threads)
        return self.models[path]

    def info(self):
        return {"system": "llama.cpp", "llama-cpp-python": l.__version__ if hasattr(l, "__version__") else "", "build": l.llama_print_system_info().decode()}

    def run(self, lanes, s, name):
        """The time of one pass of s tokens in each lane, behind a past of peer.PAST."""
        m, lanes, s = self.open(name), int(lanes), int(s)
        m.fill(lanes, peer.PAST)

        def step():
            for lane in range(lanes):
                m.feed(peer.prompt(lane + 50, s), peer.PAST, lane, "all", more=lane < lanes - 1)
            for lane in range(lanes):
                m.rewind(peer.PAST, lane)

        return {"ms": peer.milliseconds(step)}

    def decode(self, precision, k, lanes, how, seconds):
        """Decoding of some sequences together, tokens drawn by llama.cpp's own samplers."""
        if k != "0":
            assert lanes == "1", "its speculative decoding takes one sequence here"
            return self.speculate(precision, int(k), how, float(seconds))
        m, lanes = self.open("target-" + precision), int(lanes)
        sampler = m.samplers[how]
        tokens, spent, last = 0, 0.0, [0] * lanes
        while spent < float(seconds):
            m.fill(lanes, peer.PROMPT - 1)
            for i in range(peer.NEW + 2):
                now = time.perf_counter()
                if i == 2:
                    begin = now
                elif i > 2 and now - begin > 3 * float(seconds):
                    i -= 1
                    break
                for lane in range(lanes):
                    token = last[lane] if i else peer.prompt(lane)[-1]
                    m.feed([token], peer.PROMPT - 1 + i, lane, more=lane < lanes - 1)
                for lane in range(lanes):
                    last[lane] = l.llama_sampler_sample(sampler, m.context, lane)
            spent += time.perf_counter() - begin
            tokens += lanes * (i - 1)
        return {"tokens_per_s": tokens / spent}

    def speculate(self, precision, k, how, seconds):
        """One sequence with a draft model, as llama.cpp's own programs do it: the draft's most probable tokens are
        kept as far as they are what the target's sampler draws at each position."""
        m, draft = self.open("target-" + precision), self.open("draft-" + precision)
        tokens, loops, spent, number = 0, 0, 0.0, 0
        while spent < seconds:
            prompt = peer.prompt(number)
            number += 1
            for x in m, draft:
                l.llama_memory_clear(x.memory, True)
                x.feed(prompt[:-1], 0)
            text, fed, drawn = list(prompt), len(prompt) - 1, 0
            begin = time.perf_counter()
            while drawn < peer.NEW:
                n = len(text)
                draft.feed(text[fed:], fed)
                guess = [l.llama_sampler_sample(draft.samplers["greedy"], draft.context, -1)]
                for i in range(1, k):
                    draft.feed(guess[-1:], n + i - 1)
                    guess.append(l.llama_sampler_sample(draft.samplers["greedy"], draft.context, -1))
                m.feed(text[-1:] + guess, n - 1, logits="all")
                for i in range(k + 1):
                    text.append(l.llama_sampler_sample(m.samplers[how], m.context, i))
                    if i == k or text[-1] != guess[i]:
                        break
                m.rewind(len(text) - 1)
                fed = min(n + k - 1, len(text) - 1)
                draft.rewind(fed)
                drawn, loops = drawn + len(text) - n, loops + 1
            spent += time.perf_counter() - begin
            tokens += drawn
        return {"tokens_per_s": tokens / spent, "tokens_per_loop": tokens / loops}

    def prefill(self, precision, n):
        """The time of feeding a prompt of n tokens, of which the last one's logits are wanted."""
        m, n = self.open("target-" + precision), int(n)
        best = []
        for number in range(3):
            l.llama_memory_clear(m.memory, True)
            begin = time.perf_counter()
            m.feed(peer.prompt(number, n), 0)
            best.append(time.perf_counter() - begin)
        return {"tokens": n, "ms": 1000 * sorted(best)[1]}

    def greedy(self, precision):
        m = self.open("target-" + precision)
        m.fill(1, peer.PROMPT - 1)
        tokens = peer.prompt(0)[-1:]
        for i in range(32):
            m.feed(tokens[-1:], peer.PROMPT - 1 + i)
            tokens.append(l.llama_sampler_sample(m.samplers["greedy"], m.context, -1))
        return {"tokens": tokens[1:]}


def main():
    quiet = l.llama_log_callback(lambda level, text, data: None)
    l.llama_log_set(quiet, ctypes.c_void_p(0))
    l.llama_backend_init()
    peer.read_prompts(sys.argv[1])
    s = Server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    peer.serve({"info": s.info, "pass": lambda name, lanes, n: s.run(lanes, n, name), "decode": s.decode, "greedy": s.greedy, "prefill": s.prefill})


if __name__ == "__main__":
    main()
