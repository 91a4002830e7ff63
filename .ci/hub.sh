#!/usr/bin/env bash
# Holds the cache of storage/hub against Python's huggingface_hub: each finds what
# the other has fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m venv "$tmp/venv" || { apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$tmp/venv"; }
"$tmp/venv/bin/pip" install -q huggingface_hub==2.4.0
PYTHON="$tmp/venv/bin/python" go test -tags python -run Python -count 1 -v ./storage/hub
