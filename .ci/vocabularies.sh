#!/usr/bin/env bash
# Holds tokenizers made of GGUF files with real vocabularies (tekken, SentencePiece) against Mistral's own. With
# MODEL=FILE.gguf and TOKENIZER=tokenizer.json of the same model, against that one too.
set -euo pipefail
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m venv "$tmp/venv" || { apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$tmp/venv"; }
"$tmp/venv/bin/pip" install -q gguf==0.19.0 'mistral-common[sentencepiece]==1.13.1' tokenizers==0.22.1
mkdir "$tmp/out"
"$tmp/venv/bin/python" ort/convert/testdata/real_vocabularies.py testdata/tokenizers/texts.json.gz "$tmp/out" \
	${MODEL:+"$MODEL" "$TOKENIZER"}
VOCABULARIES="$tmp/out" go test -tags python -run RealVocabularies -count 1 -v ./cmd/internal/app
