#!/usr/bin/env bash
# Puts ONNX Runtime with CUDA into the user's cache, where package library finds
# it for device cuda. Python's pip fetches the wheel and unpacks it; nothing of
# Python is needed afterwards. The three files come from one wheel, whose digest
# is checked, and appear together or not at all.
set -euo pipefail

version=1.31.1
wheel=onnxruntime_gpu-$version-cp312-cp312-manylinux_2_28_x86_64.whl
sha256=05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7
python=${PYTHON:-python3}

fail() { echo "install onnx runtime $version with CUDA: $*" >&2; exit 1; }

[ "$(uname -sm)" = "Linux x86_64" ] || fail "there is a build for Linux on x86-64 only: build the library with CUDA yourself and name it in DRAFTMILL_ORT_LIBRARY"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/draftmill/onnxruntime/$version
target=$cache/linux-x64-cuda
mkdir -p "$cache"
exec 9>>"$cache/lock" # the one that package library takes
flock 9
[ -f "$target/libonnxruntime.so.1" ] && { echo "$target"; exit; }

"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip: install Python 3 with pip, or name another interpreter in PYTHON"
temp=$(mktemp -d "$cache/install-cuda-XXXXXX")
trap 'rm -rf "$temp"' EXIT
echo "downloading $wheel with pip (256 MB; 314 MB are kept). It needs an NVIDIA driver of version 580 or later, and CUDA 13's libraries and cuDNN 9 (1.3 GB as wheels; see ort/library/doc.go)" >&2
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--python-version 3.12 --implementation cp --platform manylinux_2_28_x86_64 \
	--dest "$temp" "onnxruntime-gpu==$version" || fail "pip download failed: check the network and pip's index setting"
[ -f "$temp/$wheel" ] || fail "pip brought $(ls "$temp") in place of $wheel"
echo "$sha256  $temp/$wheel" | sha256sum --check --quiet || fail "the wheel's digest is not $sha256: it was not unpacked; check pip's index setting and cache (pip cache purge)"

echo "unpacking $target" >&2
"$python" -m zipfile -e "$temp/$wheel" "$temp/wheel"
mkdir "$temp/library"
from=$temp/wheel/onnxruntime/capi
mv "$from/libonnxruntime.so.$version" "$temp/library/libonnxruntime.so.1"
mv "$from/libonnxruntime_providers_cuda.so" "$from/libonnxruntime_providers_shared.so" "$temp/library/"
chmod 755 "$temp/library"/*
sync "$temp/library"/*
rm -rf "$target" # left incomplete by hand: it has no library
mv "$temp/library" "$target"
echo "$target"
