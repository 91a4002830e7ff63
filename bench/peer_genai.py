"""onnxruntime-genai, its own speculative decoding among it: python peer_genai.py PAIR [THREADS [SESSION_OPTIONS]]

SESSION_OPTIONS, key=value,key=value, are given to both sessions: by default it runs with the library's own.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import onnxruntime_genai as og

import peer

SAMPLING = {
    "greedy": dict(do_sample=False),
    "sample": dict(do_sample=True, temperature=1.0, top_k=0, top_p=1.0),
    "top50": dict(do_sample=True, temperature=1.0, top_k=50, top_p=1.0),
    "nucleus": dict(do_sample=True, temperature=0.8, top_k=0, top_p=0.95),
}


class Server:
    def __init__(self, pair, threads, session):
        self.pair, self.models = Path(pair).resolve(), {}
        self.session = {"intra_op_num_threads": threads, **dict(e.split("=") for e in session.split(",") if e)}
        self.folder = tempfile.TemporaryDirectory()

    def open(self, precision, draft):
        """The target, with the draft beside it where it is asked for, by a configuration that names the files in place."""
        name = precision + ("-pair" if draft else "")
        if name not in self.models:
            folder = Path(self.folder.name) / name
            folder.mkdir()

            def decoder(model):
                (folder / model).symlink_to(self.pair / "onnx" / f"{model}-{precision}")
                config = json.loads((folder / model / "genai_config.json").read_text())
                block = config["model"]["decoder"]
                block["session_options"].update(self.session)
                block["filename"] = f"{model}/model.onnx"
                return config, block

            config, _ = decoder("target")
            if draft:
                config["model"]["draft"] = decoder("draft")[1]
            (folder / "genai_config.json").write_text(json.dumps(config))
            self.models[name] = og.Model(str(folder))
        return self.models[name]

    def generator(self, precision, k, how):
        model = self.open(precision, k > 0)
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=256, min_length=256, **SAMPLING[how])
        if k > 0:
            params.set_speculative_options(max_draft_tokens=k, min_adaptive_k=0)
        return og.Generator(model, params)

    def decode(self, precision, k, lanes, how, seconds):
        """Decoding one sequence after another; the clock runs between the second token and the last."""
        assert lanes == "1", "its speculative decoding takes one sequence"
        tokens, loops, drawn, spent, number = 0, 0, 0, 0.0, 0
        while spent < float(seconds):
            g = self.generator(precision, int(k), how)
            g.append_tokens(peer.prompt(number))
            number += 1
            for i in range(peer.NEW + 2):
                now = time.perf_counter()
                if i == 2:
                    begin = now
                elif i > 2 and now - begin > 3 * float(seconds):
                    i -= 1
                    break
                g.generate_next_token()
            spent += time.perf_counter() - begin
            tokens += i - 1
            if int(k) > 0:
                stats = g.get_speculative_stats()
                loops, drawn = loops + stats["rounds"], drawn + stats["tokens_queued"]
        return {"tokens_per_s": tokens / spent, "tokens_per_loop": drawn / loops if loops else 1}

    def greedy(self, precision):
        g = self.generator(precision, 0, "greedy")
        g.append_tokens(peer.prompt(0))
        for _ in range(32):
            g.generate_next_token()
        return {"tokens": [int(t) for t in g.get_sequence(0)[peer.PROMPT :]]}

    def info(self):
        return {"system": "onnxruntime-genai", "onnxruntime-genai": og.__version__, "session": self.session}


def main():
    peer.read_prompts(sys.argv[1])
    s = Server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2, sys.argv[3] if len(sys.argv) > 3 else "")
    peer.serve({"info": s.info, "decode": s.decode, "greedy": s.greedy})


if __name__ == "__main__":
    main()
