package hub

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Prefix is what names of the Hub begin with where paths are taken too.
const Prefix = "hf:"

// Kind is what a repository holds.
type Kind string

// The kinds of repositories.
const (
	Model   Kind = "model"
	Dataset Kind = "dataset"
)

// Name names a repository of the Hub, or a file or folder in it.
type Name struct {
	Kind     Kind
	Repo     string // OWNER/REPO
	Path     string // in the repository; empty for all of it
	Revision string // a branch, a tag or a commit; empty for main
}

// Is reports whether text is to be read as a Name.
func Is(text string) bool { return strings.HasPrefix(text, Prefix) }

var repoName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Parse reads hf:OWNER/REPO[/PATH][@REVISION].
func Parse(kind Kind, text string) (Name, error) {
	n := Name{Kind: kind}
	rest, ok := strings.CutPrefix(text, Prefix)
	rest, revision, pinned := strings.Cut(rest, "@")
	n.Revision = revision
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) > 1 {
		n.Repo = parts[0] + "/" + parts[1]
	}
	if len(parts) > 2 {
		n.Path = strings.TrimSuffix(parts[2], "/")
	}
	var err error
	switch {
	case !ok || !repoName.MatchString(n.Repo) || strings.Contains(n.Repo, "--") || strings.Contains(n.Repo, ".."):
		err = errors.New("want hf:OWNER/REPO, hf:OWNER/REPO/PATH or either with @REVISION")
	case len(parts) > 2 && !inside(n.Path):
		err = fmt.Errorf("%q is no path inside a repository", parts[2])
	case pinned && !inside(revision):
		err = fmt.Errorf("%q is no branch, tag or commit", revision)
	}
	if err != nil {
		return Name{}, fmt.Errorf("%s: %w", text, err)
	}
	return n, nil
}

// inside reports whether name is a relative path that leads nowhere else.
func inside(name string) bool {
	return filepath.IsLocal(filepath.FromSlash(name)) && path.Clean(name) == name && name != "." && !strings.ContainsAny(name, "\\\x00\n\r")
}

// String is what Parse reads.
func (n Name) String() string {
	text := Prefix + n.Repo
	if n.Path != "" {
		text += "/" + n.Path
	}
	if n.Revision != "" {
		text += "@" + n.Revision
	}
	return text
}

// folder is the repository's name in the cache.
func (n Name) folder() string {
	return string(n.Kind) + "s--" + strings.ReplaceAll(n.Repo, "/", "--")
}

// page is the repository's path on the server.
func (n Name) page() string {
	if n.Kind == Dataset {
		return "datasets/" + n.Repo
	}
	return n.Repo
}

func (n Name) revision() string {
	if n.Revision == "" {
		return "main"
	}
	return n.Revision
}

var commitName = regexp.MustCompile(`^[0-9a-f]{40}$`)
