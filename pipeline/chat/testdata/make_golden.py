"""Renders conversations as transformers does, for golden_test.go.

    pip install transformers==5.23.0 jinja2==3.1.6
    python make_golden.py                     # golden.json, of the templates beside it
    python make_golden.py OUT.json FOLDER...  # of model folders: DRAFTMILL_CHAT_GOLDEN=OUT.json go test -run Golden

The templates in templates/ were written for this test. They have the forms that
ChatML, Llama 3, Mistral, Phi-3 and Gemma 2 are prompted in.
"""

import datetime
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as chat


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat.datetime = Fixed  # strftime_now


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


call = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": "<é> 'q'", "l": [1, 2.5, True], "e": []}}}
conversations = {
    "user": [turn("user", "Hello")],
    "signs": [turn("user", "  Größe <b>&amp;</b> 'x' \"y\" 日本 \U0001f600\r\n\n{{ not }} {% me %} <|im_end|>\n")],
    "system": [turn("system", " Be short. "), turn("user", "Hello")],
    "turns": [turn("user", "Hi"), turn("assistant", "Hello.\n"), turn("user", "2+2?")],
    "long": [
        turn("system", "S"), turn("user", "Hi", name="ann"), turn("assistant", "<think>\nhm\n</think>\n\nHello."),
        turn("user", "2+2?", name="bob"), turn("assistant", "4"), turn("user", "Why?", name="ann"),
    ],
    "twice": [turn("user", "a"), turn("user", "b")],
    "assistant last": [turn("user", "a"), turn("assistant", "b")],
    "empty": [turn("user", "")],
    "tool": [turn("user", "a"), turn("assistant", "", tool_calls=[call]), turn("tool", "3", tool_call_id="call00001"), turn("assistant", "c"), turn("user", "d")],
}


def text(token):
    return token["content"] if isinstance(token, dict) else token


def folder(path):
    config = json.loads((path / "tokenizer_config.json").read_text())
    jinja = path / "chat_template.jinja"
    template = jinja.read_text() if jinja.exists() else config["chat_template"]
    if isinstance(template, list):
        template = {t["name"]: t["template"] for t in template}["default"]
    tokens = {k: text(v) for k, v in config.items() if k.endswith("_token") and isinstance(v, (str, dict))}
    return {"template": template, "tokens": tokens}


here = pathlib.Path(__file__).parent
out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "golden.json"
if len(sys.argv) > 2:
    templates = {p.name: folder(p) for p in map(pathlib.Path, sys.argv[2:])}
else:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    templates = {p.stem: {"template": p.read_text(), "tokens": tokens} for p in sorted((here / "templates").glob("*.jinja"))}

cases = []
for name, t in templates.items():
    for title, messages in conversations.items():
        for generation in (True, False):
            case = {"template": name, "conversation": title, "generation": generation}
            try:
                rendered, _ = chat.render_jinja_template(
                    conversations=[messages], chat_template=t["template"], add_generation_prompt=generation, **t["tokens"])
                case["text"] = rendered[0]
            except Exception as e:  # whatever a template may do
                case["error"] = str(e)
            cases.append(case)
golden = {"templates": templates, "conversations": conversations, "cases": cases}
out.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")
print(len(cases), "cases,", sum("error" in c for c in cases), "refused")
