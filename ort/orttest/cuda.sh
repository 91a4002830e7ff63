#!/usr/bin/env bash
# Plays the conformance suite on the NVIDIA GPUs of this machine. Where there is
# none it says so and runs nothing, which is a failure only if a GPU was asked
# for (GPU=1).
set -euo pipefail
cd "$(dirname "$0")/../.."

gpus=$(nvidia-smi -L 2>/dev/null || true)
if [ -z "$gpus" ]; then
	echo "test-cuda: NOT RUN: this machine shows no NVIDIA GPU (nvidia-smi -L)"
	[ -z "${GPU:-}" ] || { echo "test-cuda: a GPU was asked for (GPU=$GPU)" >&2; exit 1; }
	exit 0
fi
echo "$gpus"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
[ -n "${DRAFTMILL_ORT_LIBRARY:-}" ] || ort/library/cuda.sh >/dev/null
DRAFTMILL_TEST_GPUS=$(grep -c '^GPU ' <<<"$gpus") "${GO:-go}" test -count 1 -v -tags cuda -run CUDA ./ort
