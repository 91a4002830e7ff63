#!/usr/bin/env bash
# Plays the conformance suite and the sampler's tests on the NVIDIA GPUs of this
# machine. Where there is none it says so and runs nothing, which is a failure only if
# a GPU was asked for (GPU=1). It ends by itself: the tests have 7 minutes.
#
# BINARIES=DIR runs what `make test-cuda-build BINARIES=DIR` has made elsewhere, on a
# machine without Go; DRAFTMILL_ORT_LIBRARY names the library there.
set -euo pipefail
cd "$(dirname "$0")/../.."
suites="ort:CUDA cmd/internal/sampling:Standardize|Verify|Wide|NoDistribution|Confidence|Noise|Race|Wait cmd/internal/app:SamplerOnDevice"

if [ "${1:-}" = build ]; then
	dir=$(mkdir -p "$2" && cd "$2" && pwd)
	for suite in $suites; do
		package=${suite%%:*}
		"${GO:-go}" test -tags cuda -c -o "$dir/${package##*/}.test" "./$package"
	done
	echo "$dir"
	exit
fi

gpus=$(nvidia-smi -L 2>/dev/null || true)
if [ -z "$gpus" ]; then
	echo "test-cuda: NOT RUN: this machine shows no NVIDIA GPU (nvidia-smi -L)"
	[ -z "${GPU:-}" ] || { echo "test-cuda: a GPU was asked for (GPU=$GPU)" >&2; exit 1; }
	exit 0
fi
echo "$gpus"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
. ort/orttest/cuda_libraries.sh
[ -n "${DRAFTMILL_ORT_LIBRARY:-}" ] || ort/library/cuda.sh >/dev/null
DRAFTMILL_TEST_GPUS=$(grep -c '^GPU ' <<<"$gpus")
export DRAFTMILL_TEST_GPUS

binaries=${BINARIES:-}
if [ -z "$binaries" ]; then
	binaries=$(mktemp -d)
	trap 'rm -rf "$binaries"' EXIT
	"$0" build "$binaries" >/dev/null
fi
binaries=$(cd "$binaries" && pwd)
failed=0 left=420 # seconds
for suite in $suites; do
	package=${suite%%:*} began=$SECONDS
	echo "== $package"
	(cd "$package" && timeout -k 10 "$left" "$binaries/${package##*/}.test" -test.v -test.run "${suite#*:}") || { failed=1; echo "test-cuda: $package failed, or did not end in $left s"; }
	left=$((left - (SECONDS - began)))
	[ $left -gt 5 ] || left=5
done
[ $failed = 0 ] && echo "test-cuda: passed" || { echo "test-cuda: FAILED"; exit 1; }
