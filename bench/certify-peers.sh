#!/bin/sh
# Do peers' speculative samplers draw from the target's law? sh certify-peers.sh [SAMPLES [PROMPTS [TOKENS]]]
#
# The demo pair in transformers and onnxruntime-genai (versions: requirements.txt),
# with and without their own speculation, at two settings; then submit certify
# --from on what they drew, and the table of docs/lossless.md. draftmill itself is
# put to the test in the same way: it draws, exports nothing, and is certified.
# Certificates and completions are kept in $DRAFTMILL_BENCH/certify. Minutes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=${DRAFTMILL_BENCH:-$HOME/.cache/draftmill/bench}
samples=${1:-300} prompts=${2:-8} tokens=${3:-12}
if [ -z "${PYTHON:-}" ]; then
  . "$here/setup.sh"
  PYTHON=$py
fi
demo=$here/../testdata/demo
dir=$home/certify
mkdir -p "$dir"
(cd "$here/.." && go build -o "$dir/" ./cmd/submit)
settings() {
  case $1 in
  top50) echo --temperature 1 --top-k 50 ;;
  nucleus) echo --temperature 0.8 --top-p 0.95 ;;
  esac
}
certify() { # NAME SETTING arguments..; a verdict of fail is a result
  name=$1 setting=$2
  shift 2
  # shellcheck disable=SC2046
  "$dir/submit" certify --dataset "$demo/minieval.parquet" --target "$demo/target" --draft "$demo/draft" --prompts "$prompts" \
    --samples "$samples" --tokens "$tokens" $(settings "$setting") --output "$dir/$name.json" "$@" >"$dir/$name.txt" 2>"$dir/$name.err" || [ $? -eq 1 ]
}
for setting in top50 nucleus; do
  for system in transformers genai; do
    for k in 0 4; do
      name=$system-$setting-k$k
      "$PYTHON" "$here/certify_peers.py" $system $setting "$demo" "$demo/minieval.parquet" "$dir/$name.jsonl" \
        --prompts "$prompts" --samples "$samples" --tokens "$tokens" --k $k
      certify "$name" $setting --from "$dir/$name.jsonl"
    done
  done
  for rule in rejection coupled; do
    certify "draftmill-$rule-$setting-k4" $setting --rule $rule --k 4 --seed 1
  done
done
"$PYTHON" "$here/certify_table.py" "$dir"
