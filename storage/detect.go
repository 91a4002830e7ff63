package storage

import (
	"bytes"
	"errors"
	"io"
)

// Values of Info.Format.
const (
	FormatParquet     = "parquet"
	FormatArrowFile   = "arrow file"
	FormatArrowStream = "arrow stream"
	FormatJSONLines   = "json lines"
)

var byteOrderMark = []byte("\xEF\xBB\xBF")

// foreign are the first bytes of files that people name by mistake.
var foreign = []struct{ magic, is string }{
	{"PARE", "a Parquet file with an encrypted footer: decrypt it first"},
	{"FEA1", "a Feather version 1 file: write it as Arrow IPC (Feather version 2)"},
	{"\x1f\x8b", "compressed with gzip: decompress it first"},
	{"\x28\xb5\x2f\xfd", "compressed with zstd: decompress it first"},
	{"BZh", "compressed with bzip2: decompress it first"},
	{"\xfd7zXZ", "compressed with xz: decompress it first"},
	{"PK\x03\x04", "a zip archive: unpack it first"},
	{"\xff\xfe", "UTF-16 text: write it as UTF-8"},
	{"\xfe\xff", "UTF-16 text: write it as UTF-8"},
}

// detectFormat tells a file's format by its first and last bytes.
func detectFormat(r io.ReaderAt, size int64) (string, error) {
	head := make([]byte, min(size, 64<<10))
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return "", err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PAR1")):
		tail := make([]byte, 4)
		if _, err := r.ReadAt(tail, size-4); err != nil && err != io.EOF {
			return "", err
		}
		if size < 12 || string(tail) != "PAR1" {
			return "", errors.New("it begins as a Parquet file but does not end as one: it was cut off; copy it again")
		}
		return FormatParquet, nil
	case bytes.HasPrefix(head, []byte("ARROW1")):
		return FormatArrowFile, nil
	case bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")): // a message's continuation mark
		return FormatArrowStream, nil
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return "", errors.New("it is " + f.is)
		}
	}
	switch text := bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n"); {
	case len(text) == 0:
		return "", errors.New("it holds nothing but white space")
	case text[0] == '{':
		return FormatJSONLines, nil
	case text[0] == '[':
		return "", errors.New("it is a JSON array: write JSON Lines, one object per line")
	}
	return "", errors.New("it is not a Parquet, Arrow IPC or JSON Lines file")
}
