#!/usr/bin/env bash
# A pair on an NVIDIA GPU: ArS and SpS at 1, 8, 32 and 64 sequences, as one Markdown
# table. It ends by itself, in under 8 minutes where the pair is there already, and
# prints what it has when the time is over.
#
#	make bench-gpu                              a pair of random weights of SIZE=7b, made first
#	make bench-gpu PAIR=DIR PRECISION=fp16      onnx/target-fp16 and onnx/draft-fp16 of DIR
#	make bench-gpu DEVICE=cpu                   without a GPU: the demo's pair on the CPU, a second a
#	                                            rate, to see that everything runs to its end
#
# OURS=FILE is the program bench/ours, built elsewhere: no Go is needed then. SUBMIT=FILE
# likewise. PEER=PYTHON measures transformers too. LIMIT and SECONDS_EACH are seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
device=${DEVICE:-cuda}
home=${DRAFTMILL_BENCH:-$HOME/.cache/draftmill/bench}
mkdir -p "$home"
say() { echo "bench-gpu: $*" >&2; }

if [ "${device%%:*}" = cuda ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
	echo "bench-gpu: NOT RUN: this machine shows no NVIDIA GPU (nvidia-smi -L); DEVICE=cpu runs it without one"
	[ -z "${GPU:-}" ] || { say "a GPU was asked for (GPU=$GPU)"; exit 1; }
	exit 0
fi
if [ "${device%%:*}" = cuda ]; then
	. ort/orttest/cuda_libraries.sh
	[ -n "${DRAFTMILL_ORT_LIBRARY:-}" ] || ort/library/cuda.sh >/dev/null
fi

ours=${OURS:-}
if [ -z "$ours" ]; then
	ours=$home/ours-gpu
	"${GO:-go}" build -o "$ours" ./bench/ours
fi

arguments=(--device "$device" --ours "$ours" --log "$home/gpu.log")
pair=${PAIR:-}
if [ -z "$pair" ] && [ "$device" = cpu ]; then
	pair=$(mktemp -d)
	trap 'rm -rf "$pair"' EXIT
	mkdir "$pair/onnx"
	ln -s "$PWD/testdata/demo/target" "$pair/onnx/target-demo"
	ln -s "$PWD/testdata/demo/draft" "$pair/onnx/draft-demo"
	arguments+=(--precision "${PRECISION:-demo}" --seconds "${SECONDS_EACH:-1}" --limit "${LIMIT:-180}" --sequences ${SEQUENCES:-1 8 32 64})
else
	precision=${PRECISION:-bf16}
	if [ -z "$pair" ]; then
		size=${SIZE:-7b}
		pair=$home/gpu-pair-$size
		type=$(case $precision in fp16) echo float16 ;; bf16) echo bfloat16 ;; *) echo float32 ;; esac)
		[ -f "$pair/pair.json" ] || timeout 400 "${PYTHON:-python3}" bench/gpu_pair.py "$pair" --size "$size" --type "$type" --device "${device%%:*}" >&2
	fi
	submit=${SUBMIT:-}
	for name in target draft; do
		[ -d "$pair/onnx/$name-$precision" ] && continue
		if [ -z "$submit" ]; then
			submit=$home/submit-gpu
			"${GO:-go}" build -o "$submit" ./cmd/submit
		fi
		say "converting $name to $precision"
		timeout 300 "$submit" import "$pair/hf/$name" "$pair/onnx/$name-$precision" --precision "$precision" --device "${device%%:*}" >&2
	done
	arguments+=(--precision "$precision" --seconds "${SECONDS_EACH:-4}" --limit "${LIMIT:-420}" --sequences ${SEQUENCES:-1 8 32 64})
fi
[ -z "${BANDWIDTH:-}" ] || arguments+=(--bandwidth "$BANDWIDTH")
[ -z "${PEER:-}" ] || arguments+=(--transformers "$PEER")
"${PYTHON:-python3}" bench/gpu.py --pair "$pair" "${arguments[@]}"
