package storage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxLine bounds one line of JSON Lines.
var maxLine = 64 << 20

// jsonLines reads JSON Lines, in the reader's process: a line can be long, and what
// it holds much longer in memory.
type jsonLines struct {
	buf    *bufio.Reader
	line   int // of the object read last, from 1
	what   Info
	wanted wanted                     // what is read of each object
	head   map[string]json.RawMessage // the first object, read ahead
}

// openJSONLines reads a file from its start; the caller closes it.
func openJSONLines(f io.Reader, cols wanted) (*jsonLines, error) {
	s := &jsonLines{buf: bufio.NewReaderSize(f, 1<<16)}
	return s, s.start(cols)
}

func (s *jsonLines) start(cols wanted) error {
	if head, _ := s.buf.Peek(len(byteOrderMark)); bytes.Equal(head, byteOrderMark) {
		_, _ = s.buf.Discard(len(byteOrderMark))
	}
	var err error
	if s.head, err = s.object(); err != nil {
		return err
	}
	all := slices.Sorted(maps.Keys(s.head))
	found, err := cols.find(all, func(string, bool) error { return nil })
	if err != nil {
		return fmt.Errorf("line %d: %w", s.line, err)
	}
	// A null says nothing; it reads as a text that is not there.
	found.Messages = cols.Messages && bytes.HasPrefix(s.head[found.Prompt], []byte("["))
	s.what = Info{Format: FormatJSONLines, Rows: -1, Columns: found, All: all}
	s.wanted = wanted{found, cols.Only}
	return nil
}

func (s *jsonLines) info() Info { return s.what }

func (s *jsonLines) next() (Row, error) {
	object := s.head
	if s.head = nil; object == nil {
		var err error
		if object, err = s.object(); err != nil {
			return Row{}, err
		}
	}
	row := Row{Null: true, Fields: make(map[string]string, len(object))}
	for _, name := range s.what.All {
		row.Fields[name] = "" // absent reads as null
	}
	for name, raw := range object {
		if !s.wanted.reads(name) {
			delete(row.Fields, name)
			continue
		}
		switch raw[0] {
		case '{', '[':
			delete(row.Fields, name)
		case 'n':
			row.Fields[name] = ""
		case '"':
			row.Fields[name] = string(jsonText(raw))
		default:
			row.Fields[name] = string(raw)
		}
	}
	switch raw := object[s.what.Columns.Prompt]; {
	case len(raw) == 0 || raw[0] == 'n':
	case s.what.Columns.Messages: // what is no list is for its reader to say
		row.Prompt, row.Null = bytes.Clone(raw), false
	case raw[0] == '"':
		row.Prompt, row.Null = jsonText(raw), false
	default:
		return Row{}, fmt.Errorf("line %d: column %q is not text: %s", s.line, s.what.Columns.Prompt, oneLine(string(raw)))
	}
	row.ID = row.Fields[s.what.Columns.ID]
	return row, nil
}

// object reads the next line that is not blank.
func (s *jsonLines) object() (map[string]json.RawMessage, error) {
	for {
		line, err := s.readLine()
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var object map[string]json.RawMessage
		err = json.Unmarshal(line, &object)
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &kind) || err == nil && object == nil:
			return nil, fmt.Errorf("line %d: not a JSON object", s.line)
		case err != nil:
			return nil, fmt.Errorf("line %d: malformed JSON: %s", s.line, oneLine(err.Error()))
		}
		return object, nil
	}
}

// readLine returns the next line, valid until the next call.
func (s *jsonLines) readLine() ([]byte, error) {
	var long []byte
	for {
		part, err := s.buf.ReadSlice('\n')
		if len(long)+len(part) > maxLine {
			return nil, fmt.Errorf("line %d: longer than %d MiB", s.line+1, maxLine>>20)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			continue
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		if long != nil {
			part = append(long, part...)
		}
		if err == io.EOF && len(part) == 0 {
			return nil, io.EOF
		}
		s.line++
		return part, nil
	}
}

// jsonText is the text of a valid JSON string literal. encoding/json would
// replace what is not Unicode by U+FFFD; here bytes that are not UTF-8 stay as
// they are, and half a surrogate pair becomes the three bytes that UTF-8 would
// give it, which are not UTF-8 either: the row is then refused for what it
// holds, and not decoded as something else.
func jsonText(literal []byte) []byte {
	in := literal[1 : len(literal)-1]
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		if in[0] != '\\' {
			out, in = append(out, in[0]), in[1:]
			continue
		}
		c := in[1]
		if c != 'u' {
			if i := bytes.IndexByte([]byte("bfnrt"), c); i >= 0 {
				c = "\b\f\n\r\t"[i]
			}
			out, in = append(out, c), in[2:]
			continue
		}
		r := hex4(in[2:])
		in = in[6:]
		if utf16.IsSurrogate(r) {
			if len(in) >= 6 && in[0] == '\\' && in[1] == 'u' {
				if pair := utf16.DecodeRune(r, hex4(in[2:])); pair != utf8.RuneError {
					out, in = utf8.AppendRune(out, pair), in[6:]
					continue
				}
			}
			out = append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

func hex4(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16) // the parser has checked the digits
	return rune(n)
}
