#!/bin/sh
# SpS with a whole draft and with one whose head scores N tokens, in turns:
#
#   sh bench/trim.sh TARGET DRAFT DATASET [N [ROUNDS [flags of submit]]]
#
# DRAFT is a Hugging Face folder or a .gguf file. Which tokens are frequent is
# counted in TEXT, a dataset of text in its column COLUMN (default: text) that is
# like what is to be written; without it, in what the target writes to the demo's
# problems, which is little. Neither should be DATASET.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 3 ] || { echo "usage: sh bench/trim.sh TARGET DRAFT DATASET [N [ROUNDS [flags of submit]]]" >&2; exit 2; }
target=$1 draft=$2 dataset=$3 n=${4:-32768} rounds=${5:-3}
shift 3
[ $# -eq 0 ] || shift
[ $# -eq 0 ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
submit() { bin/submit "$@" 2>>"$work/log" || { tail -5 "$work/log" >&2; exit 1; }; }
if [ -n "${TEXT:-}" ]; then
	submit ngram --order 1 --dataset "$TEXT" --column "${COLUMN:-text}" --target "$target" --output "$work/table"
else
	submit --dataset testdata/demo/minieval.parquet --limit 24 --mode ars --target "$target" --max-new-tokens 256 --lanes auto --out "$work" --job count "$@" >/dev/null
	submit ngram --order 1 --job count --out "$work" --target "$target" --output "$work/table"
fi
submit import "$draft" "$work/whole"
submit import "$draft" "$work/trimmed" --trim-vocab "$n:$work/table"
for round in $(seq "$rounds"); do
	for kind in whole trimmed; do
		submit --dataset "$dataset" --limit 16 --mode sps --target "$target" --draft "$work/$kind" --max-new-tokens 128 \
			--out "$work" --job "$kind-$round" --json "$@" >"$work/$kind-$round.json"
	done
done
python3 - "$work" "$rounds" <<'PY'
import json, statistics, sys
work, rounds = sys.argv[1], int(sys.argv[2])
rate = {}
print("draft     tokens/s (each round)             alpha   draft ms per token")
for kind in ("whole", "trimmed"):
    modes = [json.load(open(f"{work}/{kind}-{r}.json"))["modes"]["sps"] for r in range(1, rounds + 1)]
    rates = [1000 / m["mean_token_ms"] for m in modes]
    rate[kind] = statistics.median(rates)
    print(f'{kind:8}  {", ".join(f"{r:.2f}" for r in rates):32}  {modes[0]["alpha"]:.4f}  {statistics.median(m["draft_ms"] for m in modes):.3f}')
print(f'trimmed over whole, medians: {rate["trimmed"] / rate["whole"]:.3f}')
PY
