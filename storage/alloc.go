package storage

import "github.com/apache/arrow/go/v17/arrow/memory"

// allocator serves every Arrow buffer of the package; tests replace it by a
// checked one.
var allocator memory.Allocator = memory.DefaultAllocator
