"""Makes the tiny models of this folder and their golden logits.

    python make_models.py        (onnx 1.23, numpy 2.4)

One set of random weights, a Llama-shaped decoder of two layers (RMSNorm, rotary
embedding, grouped queries, gated MLP), is written as six graphs:

    gqa      GroupQueryAttention, caches in shared buffers, external data
    growing  plain operators, growing caches, position_ids
    float16  as growing, but caches and logits of float16 and no position_ids
    bfloat16 as gqa, but logits of bfloat16
    gqa-float16  as gqa, but caches of float16
    acausal  as growing, but wrong: a token sees those that are fed after it

golden.json holds a token sequence and its logits, computed here with numpy.
"""
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

HERE = pathlib.Path(__file__).parent
VOCAB, HIDDEN, LAYERS, HEADS, KV, SIZE, CONTEXT, EPS = 64, 32, 2, 4, 2, 16, 48, 1e-5

rng = np.random.default_rng(7)


def normal(*shape, scale):
    # Rounded, so that the file compresses well.
    return (np.round(rng.normal(size=shape) * scale * 256) / 256).astype(np.float32)


W = {"embed": normal(VOCAB, HIDDEN, scale=1.0), "head": normal(HIDDEN, VOCAB, scale=0.4)}
for i in range(LAYERS):
    W[f"{i}.q"] = normal(HIDDEN, HEADS * SIZE, scale=0.4)
    W[f"{i}.k"] = normal(HIDDEN, KV * SIZE, scale=0.4)
    W[f"{i}.v"] = normal(HIDDEN, KV * SIZE, scale=0.3)
    W[f"{i}.o"] = normal(HEADS * SIZE, HIDDEN, scale=0.2)
    W[f"{i}.gate"] = normal(HIDDEN, HIDDEN, scale=0.2)
    W[f"{i}.up"] = normal(HIDDEN, HIDDEN, scale=0.2)
    W[f"{i}.down"] = normal(HIDDEN, HIDDEN, scale=0.2)
angles = np.arange(CONTEXT)[:, None] / 10000 ** (np.arange(0, SIZE, 2) / SIZE)[None, :]
W["cos"], W["sin"] = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def reference(ids):
    """Logits of the whole sequence, [len(ids), VOCAB]."""
    n = len(ids)
    norm = lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)

    def rotate(x):  # [n, heads, SIZE]
        a, b = x[..., : SIZE // 2], x[..., SIZE // 2 :]
        c, s = W["cos"][:n, None], W["sin"][:n, None]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    x = W["embed"][ids].astype(np.float64)
    for i in range(LAYERS):
        y = norm(x)
        q = rotate((y @ W[f"{i}.q"]).reshape(n, HEADS, SIZE))
        k = rotate((y @ W[f"{i}.k"]).reshape(n, KV, SIZE)).repeat(HEADS // KV, 1)
        v = (y @ W[f"{i}.v"]).reshape(n, KV, SIZE).repeat(HEADS // KV, 1)
        s = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(SIZE)
        s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", p, v).reshape(n, -1) @ W[f"{i}.o"]
        y = norm(x)
        g = y @ W[f"{i}.gate"]
        x = x + (g / (1 + np.exp(-g)) * (y @ W[f"{i}.up"])) @ W[f"{i}.down"]
    return norm(x) @ W["head"]


class Graph:
    def __init__(self):
        self.nodes, self.consts, self.count = [], {}, 0

    def __call__(self, op, *inputs, outputs=None, domain="", **attributes):
        self.count += 1
        outputs = outputs or [f"t{self.count}"]
        self.nodes.append(h.make_node(op, list(inputs), outputs, domain=domain, **attributes))
        return outputs[0]

    def const(self, name, value, dtype=np.int64):
        self.consts[name] = np.array(value, dtype)
        return name

    def norm(self, x):
        mean = self("ReduceMean", self("Mul", x, x), self.const("last", [-1]), keepdims=1)
        return self("Div", x, self("Sqrt", self("Add", mean, self.const("eps", EPS, np.float32))))

    def cast(self, x, to, outputs=None):
        return self("Cast", x, to=to, outputs=outputs)


def attention_gqa(g, i, q, k, v, cache):
    if cache != T.FLOAT:
        q, k, v = (g.cast(x, cache) for x in (q, k, v))
    out = g("GroupQueryAttention", q, k, v, f"past_key_values.{i}.key", f"past_key_values.{i}.value",
            "seqlens", "total", *(("cos", "sin") if cache == T.FLOAT else ("cos16", "sin16")), domain="com.microsoft",
            outputs=[f"attn{i}", f"present.{i}.key", f"present.{i}.value"],
            num_heads=HEADS, kv_num_heads=KV, do_rotary=1, rotary_interleaved=0)
    return out if cache == T.FLOAT else g.cast(out, T.FLOAT)


def attention_plain(g, i, q, k, v, cache):
    def heads(x, n):
        x = g("Reshape", x, g.const(f"heads{n}", [0, 0, n, SIZE]))
        return g("Transpose", x, perm=[0, 2, 1, 3])

    def rotate(x):
        half = g.const("half", [SIZE // 2, SIZE // 2])
        a, b = f"a{g.count}", f"b{g.count}"
        g("Split", x, half, axis=-1, outputs=[a, b])
        return g("Concat", g("Sub", g("Mul", a, "cosp"), g("Mul", b, "sinp")),
                 g("Add", g("Mul", b, "cosp"), g("Mul", a, "sinp")), axis=-1)

    def grow(kind, new):
        if cache != T.FLOAT:
            new = g.cast(new, cache)
        all_ = g("Concat", f"past_key_values.{i}.{kind}", new, axis=2, outputs=[f"present.{i}.{kind}"])
        if cache != T.FLOAT:
            all_ = g.cast(all_, T.FLOAT)
        # [1, KV, T, d] -> [1, KV, group, T, d] -> [1, HEADS, T, d]
        shape = g("Shape", all_)
        wide = g("Expand", g("Unsqueeze", all_, g.const("two", [2])),
                 g("Concat", g("Slice", shape, g.const("zero1", [0]), g.const("two", [2])), g.const("group", [HEADS // KV]),
                   g("Slice", shape, g.const("two", [2]), g.const("four", [4])), axis=0))
        return g("Reshape", wide, g.const("flat", [0, HEADS, -1, SIZE]))

    q, k, v = rotate(heads(q, HEADS)), grow("key", rotate(heads(k, KV))), grow("value", heads(v, KV))
    scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.const("scale", SIZE**-0.5, np.float32))
    scores = g("Where", "visible", scores, g.const("minus", -1e9, np.float32))
    out = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return g("Reshape", out, g.const("merge", [0, 0, HEADS * SIZE]))


def make(folder, gqa, positions=False, cache=T.FLOAT, logits=T.FLOAT, external=False, causal=True):
    g = Graph()
    if gqa:
        last = g("Sub", g("ReduceSum", "attention_mask", g.const("one1", [1]), keepdims=1), g.const("one", 1))
        g.cast(last, T.INT32, outputs=["seqlens"])
        total = g("Gather", g("Shape", "attention_mask"), g.const("one", 1), axis=0)
        g.cast(total, T.INT32, outputs=["total"])
        if cache != T.FLOAT:
            for kind in "cos", "sin":
                g.cast(kind, cache, outputs=[kind + "16"])
    else:
        pos = "position_ids"
        if not positions:  # the places of the fed tokens among the ones of the mask
            past = g("Sub", g("Shape", "attention_mask", start=1), g("Shape", "input_ids", start=1))
            ends = g("Shape", "attention_mask", start=1)
            counted = g("Sub", g("CumSum", "attention_mask", g.const("one", 1)), g.const("one", 1))
            pos = g("Slice", counted, past, ends, g.const("one1", [1]))
        for kind in "cos", "sin":
            g("Unsqueeze", g("Gather", kind, pos), g.const("one1", [1]), outputs=[kind + "p"])
        places = g("Range", g.const("zero", 0), g("Gather", g("Shape", "attention_mask"), g.const("one", 1)), g.const("one", 1))
        if not causal:
            places = g("Mul", places, g.const("zero", 0))
        seen = g("LessOrEqual", places, g("Unsqueeze", pos, g.const("last", [-1])))
        g("Unsqueeze", seen, g.const("one1", [1]), outputs=["visible"])
    x = g("Gather", "embed", "input_ids")
    for i in range(LAYERS):
        y = g.norm(x)
        q, k, v = (g("MatMul", y, f"{i}.{n}") for n in "qkv")
        a = attention_gqa(g, i, q, k, v, cache) if gqa else attention_plain(g, i, q, k, v, cache)
        x = g("Add", x, g("MatMul", a, f"{i}.o"))
        y = g.norm(x)
        gate = g("MatMul", y, f"{i}.gate")
        y = g("Mul", g("Mul", gate, g("Sigmoid", gate)), g("MatMul", y, f"{i}.up"))
        x = g("Add", x, g("MatMul", y, f"{i}.down"))
    if logits == T.FLOAT:
        g("MatMul", g.norm(x), "head", outputs=["logits"])
    else:
        g.cast(g("MatMul", g.norm(x), "head"), logits, outputs=["logits"])

    def value(name, typ, *shape):
        return h.make_tensor_value_info(name, typ, shape)

    inputs = [value("input_ids", T.INT64, "batch_size", "sequence_length"),
              value("attention_mask", T.INT64, "batch_size", "total_sequence_length")]
    if positions:
        inputs.append(value("position_ids", T.INT64, "batch_size", "sequence_length"))
    outputs = [value("logits", logits, "batch_size", "sequence_length", VOCAB)]
    for i in range(LAYERS):
        for kind in "key", "value":
            inputs.append(value(f"past_key_values.{i}.{kind}", cache, "batch_size", KV, "past_sequence_length", SIZE))
            outputs.append(value(f"present.{i}.{kind}", cache, "batch_size", KV, "total_sequence_length", SIZE))
    used = {n for node in g.nodes for n in node.input}
    weights = [numpy_helper.from_array(v, k) for k, v in {**W, **g.consts}.items() if k in used]
    model = h.make_model(h.make_graph(g.nodes, folder, inputs, outputs, weights), ir_version=10, producer_name="draftmill",
                         opset_imports=[h.make_opsetid("", 18), h.make_opsetid("com.microsoft", 1)])
    out = HERE / folder
    out.mkdir(exist_ok=True)
    (out / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(model, out / "model.onnx", save_as_external_data=external, location="model.onnx.data", size_threshold=1024)
    if external:
        (out / "model.onnx.data").chmod(0o644)
    (out / "tokenizer.json").write_text("{}\n")
    if gqa:
        config = {"model": {"type": "tiny", "vocab_size": VOCAB, "context_length": CONTEXT, "bos_token_id": 1, "eos_token_id": [2, 3],
                            "decoder": {"filename": "model.onnx", "head_size": SIZE, "num_hidden_layers": LAYERS,
                                        "num_attention_heads": HEADS, "num_key_value_heads": KV}}}
        (out / "genai_config.json").write_text(json.dumps(config, indent=1) + "\n")
    else:
        config = {"model_type": "tiny", "vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "bos_token_id": 1, "eos_token_id": 9,
                  "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV, "hidden_size": HIDDEN}
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (out / "generation_config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}\n')


make("gqa", gqa=True, external=True)
make("growing", gqa=False, positions=True)
make("float16", gqa=False, cache=T.FLOAT16, logits=T.FLOAT16)
make("bfloat16", gqa=True, logits=T.BFLOAT16)
make("gqa-float16", gqa=True, cache=T.FLOAT16)
make("acausal", gqa=False, positions=True, causal=False)
ids = [int(t) for t in rng.integers(0, VOCAB, CONTEXT)]
rows = [[float(f"{x:.6g}") for x in row] for row in reference(ids)]
(HERE / "golden.json").write_text(json.dumps({"tokens": ids, "logits": rows}) + "\n")
