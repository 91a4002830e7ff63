// Package library finds the ONNX Runtime library, and installs the pinned one.
//
// The pinned library is the CPU build inside Microsoft's npm package
// onnxruntime-node: it is fetched with `npm pack`, so that npm's registry,
// proxy and cache settings hold, and its digest is checked before anything is
// unpacked. It is kept in a per-user cache,
//
//	<os.UserCacheDir>/draftmill/onnxruntime/<version>/<platform>/
//
// which all checkouts and processes share. It runs devices cpu and webgpu.
//
// # CUDA
//
// cuda.sh (`make ort-cuda`) puts a build with CUDA, of CUDAVersion, into the
// cache beside it, from the wheel onnxruntime-gpu: libonnxruntime.so.1 and the
// provider libraries that it loads from its own folder. `pip download` fetches
// the wheel; nothing of Python is used afterwards. FindFor finds it for device
// cuda. It runs device cpu too, but not webgpu, and a process holds one library.
//
// What it needs besides, where the dynamic loader finds it (ldconfig or
// LD_LIBRARY_PATH):
//
//   - the NVIDIA driver, version 580 or later, for CUDA 13 (libcuda.so.1);
//   - CUDA 13's runtime libraries: libcudart.so.13, libcublas.so.13,
//     libcublasLt.so.13 and libcurand.so.10 to begin with, libcufft.so.12 and
//     libnvrtc.so.13 for operators that use them;
//   - cuDNN 9 for CUDA 13 (libcudnn.so.9), for reductions and others.
//
// NVIDIA's packages for Linux distributions bring them (cuda-libraries-13-0,
// libcudnn9-cuda-13), and so do wheels (nvidia-cuda-runtime, nvidia-cublas,
// nvidia-curand, nvidia-cufft, nvidia-cuda-nvrtc, nvidia-cudnn-cu13), whose lib
// folders LD_LIBRARY_PATH then names.
//
// Invariants: a file at its place in the cache is complete (it is written
// elsewhere, synced and renamed); of several installers one downloads and the
// others wait for it; once installed, nothing is downloaded again.
package library
