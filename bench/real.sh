#!/bin/sh
# A real pair beside the peers: sh real.sh TARGET DRAFT TARGET.gguf DRAFT.gguf [arguments of real.py]
#
# TARGET and DRAFT are folders with int4 models for ONNX Runtime; the GGUF files
# hold the same weights for llama.cpp (Q4_K_M, say), which also gets them in
# Q4_0. PROMPTS, a JSON Lines file with a column prompt, names the texts that are
# continued (default: the demo's problems). Where things are kept: see run.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=${DRAFTMILL_BENCH:-$HOME/.cache/draftmill/bench}
[ $# -ge 4 ] || { echo "usage: sh bench/real.sh TARGET DRAFT TARGET.gguf DRAFT.gguf [arguments of real.py]" >&2; exit 2; }
. "$here/setup.sh"
pair=$home/real
mkdir -p "$pair/onnx" "$pair/gguf"
link() { rm -f "$2"; ln -s "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")" "$2"; }
link "$1" "$pair/onnx/target-int4"
link "$2" "$pair/onnx/draft-int4"
link "$3" "$pair/gguf/target-q4_k_m.gguf"
link "$4" "$pair/gguf/draft-q4_k_m.gguf"
shift 4
"$py" "$here/real_pair.py" "$pair" "${PROMPTS:-$here/../testdata/demo/minieval.parquet}"
exec "$py" "$here/real.py" --pair "$pair" --bin "$home/bin" --log "$home/real.jsonl" "$@"
