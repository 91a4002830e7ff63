// Package hub reads models and datasets from the Hugging Face Hub, by name, into
// the cache that its Python tools use too:
//
//	HF_HUB_CACHE/models--OWNER--REPO/
//	    blobs/DIGEST                 the files, named by their digests
//	    refs/REVISION                the commit that a branch or a tag was last
//	    snapshots/COMMIT/PATH        links to blobs
//
// What is there is never downloaded again, whoever has fetched it. A download
// that broke off goes on where it was; a file takes its name only after its
// SHA-256 (large files) or its git object id (small ones) was found right. Locks
// are those of the Python tools.
//
// The environment is read as everyone knows it: HF_ENDPOINT, HF_TOKEN (or the
// file that "hf auth login" leaves), HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE.
package hub
