package storage

import "github.com/apache/arrow/go/v17/parquet/compress"

// sharedZstd compresses every page with one encoder. The library's own codec
// makes a new encoder, of some megabytes, for each page: 140 MB for a shard of
// five rows.
type sharedZstd struct{ compress.Codec }

// EncodeLevel compresses at the default level, the only one in use.
func (z sharedZstd) EncodeLevel(dst, src []byte, _ int) []byte { return z.Encode(dst, src) }

func init() {
	zstd, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic("storage: " + err.Error()) // the import above registers it
	}
	compress.RegisterCodec(compress.Codecs.Zstd, sharedZstd{zstd})
}
