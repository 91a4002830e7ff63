package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// UsageError is a mistake of whoever called the command: a bad value, an
// unknown name, a missing file. The commands print it and exit with code 2.
type UsageError struct {
	Key    string // the setting's path; empty where there is none
	Origin string // where it was given; not printed where it was not given at all
	Msg    string // what is wrong and what to do
	Err    error  // the cause, or nil
}

// Usagef is an error about the command line that is about no single setting,
// for the commands' own use.
func Usagef(format string, args ...any) *UsageError {
	err := fmt.Errorf(format, args...)
	return &UsageError{Msg: err.Error(), Err: errors.Unwrap(err)}
}

// Error is one line: "sampling.top_p: 1.5 is not in (0, 1] (--top-p)".
func (e *UsageError) Error() string {
	var b strings.Builder
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Msg)
	if e.Origin != "" && e.Origin != fromDefault {
		b.WriteString(" (" + e.Origin + ")")
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

func (e *UsageError) Unwrap() error { return e.Err }

// cause strips the operation and the path from a file error: our own text
// already names them.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
