#!/usr/bin/env bash
# Runs a command with a GPU for Vulkan: the one that VK_DRIVER_FILES names, else
# SwiftShader, a GPU in software, so that device memory is tested where there is
# no device. Its driver and Vulkan's loader come out of Debian's chromium-common,
# whose signature apt checks; they are kept in the user's cache.
#
#	ort/orttest/swiftshader.sh go test -tags webgpu -run WebGPU ./ort
set -euo pipefail

fail() { echo "swiftshader: $*" >&2; exit 1; }

if [ -z "${VK_DRIVER_FILES:-}" ]; then
	dir=${XDG_CACHE_HOME:-$HOME/.cache}/draftmill/swiftshader
	if [ ! -f "$dir/vk_swiftshader_icd.json" ]; then
		for tool in apt-get dpkg-deb; do
			command -v $tool >/dev/null || fail "needs $tool (Debian): or name the driver of another Vulkan device in VK_DRIVER_FILES"
		done
		mkdir -p "$(dirname "$dir")"
		temp=$(mktemp -d "$dir-XXXXXX")
		trap 'rm -rf "$temp"' EXIT
		(
			cd "$temp"
			apt-get download -qq chromium-common || { apt-get update -qq && apt-get download -qq chromium-common; }
		) >&2 2>"$temp/log" || fail "apt-get download chromium-common: $(tail -1 "$temp/log")"
		mkdir "$temp/files"
		dpkg-deb --fsys-tarfile "$temp"/chromium-common_*.deb | tar x -C "$temp/files" --strip-components=4 \
			./usr/lib/chromium/libvk_swiftshader.so ./usr/lib/chromium/vk_swiftshader_icd.json ./usr/lib/chromium/libvulkan.so.1 ||
			fail "this chromium-common holds no SwiftShader: name the driver of another Vulkan device in VK_DRIVER_FILES"
		rm -rf "$dir"
		mv "$temp/files" "$dir"
		rm -rf "$temp"
		trap - EXIT
	fi
	export VK_DRIVER_FILES=$dir/vk_swiftshader_icd.json
	export LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
exec "$@"
