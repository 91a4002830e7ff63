package certify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// letters is any tokenizer: texts are not looked at here.
func letters(t *testing.T) *tokenize.Tokenizer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	const file = `{"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
		"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenize.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
