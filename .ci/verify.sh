#!/usr/bin/env bash
# Holds jobs of every rule and of several drafters to docs/verify.py, the second
# implementation of storage/FORMAT.md.
set -euo pipefail
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m venv "$tmp/venv" || { apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$tmp/venv"; }
"$tmp/venv/bin/pip" install -q numpy==2.3.4 pyarrow==22.0.0

check() { # check NAME FLAG...: a small job, replayed by both implementations
	local name=$1
	shift
	bin/submit --dataset testdata/demo/minieval.parquet --limit 8 --shard-rows 3 --max-new-tokens 40 --seed 5 \
		--out "$tmp/out" --job "$name" "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
	bin/submit verify "$name" --out "$tmp/out" >/dev/null
	"$tmp/venv/bin/python" docs/verify.py "$tmp/out/$name"
}
check rejection --temperature 0.8 --n 2
check nested --temperature 0.8 --drafter model+lookup --lookahead confidence:0.4
check coupled --temperature 0.8 --rule coupled --lanes 4
check coupled-uniform --temperature 1.3 --rule coupled --drafter uniform --lookahead auto
check match --temperature 1 --rule match --drafter lookup --top-p 0.9
check lenient --temperature 0.9 --rule lenient:0.5
check capped --temperature 0.9 --rule capped:0.5
check greedy --temperature 0 --presence-penalty 0.3
check lenient-greedy --temperature 0 --rule lenient:0.5

# A draft whose head scores a part of the vocabulary.
pair=ort/convert/testdata/llama
bin/submit ngram --order 1 --dataset testdata/demo/minieval.parquet --target "$pair" --output "$tmp/own.ngram" >/dev/null
bin/submit import "$pair" "$tmp/trimmed" --trim-vocab 100:"$tmp/own.ngram" >/dev/null
trimmed=(--target "$pair" --draft "$tmp/trimmed" --template '{{.task_id}}' --temperature 0.9)
check trimmed "${trimmed[@]}"
check trimmed-nested "${trimmed[@]}" --drafter model+lookup

# A verifier that says yes to everything is none.
printf x >>"$(ls "$tmp"/out/coupled/loops/mode=sps/*.parquet | head -1)"
if "$tmp/venv/bin/python" docs/verify.py "$tmp/out/coupled" 2>/dev/null; then
	echo "docs/verify.py takes a damaged file for whole"
	exit 1
fi
