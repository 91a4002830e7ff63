// Package library finds the ONNX Runtime library, and installs the pinned one.
//
// The pinned library is the CPU build inside Microsoft's npm package
// onnxruntime-node: it is fetched with `npm pack`, so that npm's registry,
// proxy and cache settings hold, and its digest is checked before anything is
// unpacked. It is kept in a per-user cache,
//
//	<os.UserCacheDir>/draftmill/onnxruntime/<version>/<platform>/
//
// which all checkouts and processes share.
//
// Invariants: a file at its place in the cache is complete (it is written
// elsewhere, synced and renamed); of several installers one downloads and the
// others wait for it; once installed, nothing is downloaded again.
package library
