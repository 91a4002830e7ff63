package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/storage/bucket"
)

// datasetFile is a file of a dataset, open.
type datasetFile struct {
	*bucket.File
	place string
}

// openDatasetFiles opens the files of a dataset, in their order.
func openDatasetFiles(place string) (files []*datasetFile, err error) {
	places, err := expand(context.Background(), place)
	if err != nil {
		return nil, datasetError(place, err)
	}
	for _, one := range places {
		f, err := openDatasetFile(one)
		if err != nil {
			return nil, errors.Join(datasetError(one, err), closeFiles(files))
		}
		files = append(files, &datasetFile{f, one})
	}
	return files, nil
}

func closeFiles(files []*datasetFile) error {
	var err error
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// IsPattern tells whether the path or URL of a dataset may name several files: * in
// its last part stands for any characters, and ? in that of a path for one.
func IsPattern(place string) bool {
	_, name := bucket.Split(place)
	return strings.Contains(name, "*") || strings.Contains(name, "?") && !bucket.IsURL(place)
}

// expand lists the files that a path or URL names, by name. What is the name of a
// file is no pattern.
func expand(ctx context.Context, place string) ([]string, error) {
	if !IsPattern(place) {
		return []string{place}, nil
	}
	dir, pattern := bucket.Split(place)
	names, err := namesIn(ctx, dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		if name == pattern {
			return []string{place}, nil
		}
		if ok, err := path.Match(pattern, name); err != nil {
			return nil, fmt.Errorf("the pattern %q is not closed", pattern)
		} else if ok {
			found = append(found, bucket.Join(dir, name))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no file there has a name like %s", pattern)
	}
	slices.Sort(found)
	return found, nil
}

// namesIn are the names in a folder, or of the objects that lie directly in a
// part of a bucket.
func namesIn(ctx context.Context, dir string) (names []string, err error) {
	if !bucket.IsURL(dir) {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names, err
	}
	b, err := bucket.Open(dir)
	if err != nil {
		return nil, err
	}
	objects, err := b.List(ctx, "")
	for _, o := range objects {
		if !strings.Contains(o.Key, "/") {
			names = append(names, o.Key)
		}
	}
	return names, err
}

// openDatasetFile opens what can be a dataset. A folder is looked at before it is
// opened: a named pipe would wait for its writer.
func openDatasetFile(place string) (*bucket.File, error) {
	dir, name := bucket.Split(place)
	b, err := bucket.Open(dir)
	if err != nil {
		return nil, err
	}
	if !bucket.IsURL(place) {
		stat, err := os.Stat(place)
		switch {
		case err != nil:
			return nil, err
		case stat.IsDir():
			return nil, errors.New("it is a folder: name one Parquet, Arrow IPC or JSON Lines file, or several as FOLDER/*.parquet")
		case !stat.Mode().IsRegular():
			return nil, errors.New("it is not a regular file")
		}
	}
	file, err := b.Open(context.Background(), name)
	if err != nil {
		return nil, err
	}
	if file.Info.Size == 0 {
		_ = file.Close()
		return nil, errors.New("it is empty")
	}
	return file, nil
}

// filesDigest is the digest of a dataset: its file's, or of several files that of
// what sha256sum prints for them in their folder.
func filesDigest(files []*datasetFile) (string, error) {
	all := sha256.New()
	for _, f := range files {
		digest, err := fileDigest(f, f.Info.Size)
		if err != nil {
			return "", datasetError(f.place, err)
		}
		if len(files) == 1 {
			return digest, nil
		}
		_, name := bucket.Split(f.place)
		fmt.Fprintf(all, "%s  %s\n", digest, name)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// sameColumns says why a file cannot follow another one in a dataset.
func sameColumns(first, info Info) error {
	if info.Columns != first.Columns || info.Format != first.Format || info.Format != FormatJSONLines && !slices.Equal(info.All, first.All) {
		return fmt.Errorf("it is a %s file of %s; the first one is a %s file of %s: files of one dataset are of one kind, with the same columns",
			info.Format, quoteAll(info.All), first.Format, quoteAll(first.All))
	}
	return nil
}

// turn goes on with the next file; io.EOF: there is none.
func (d *Dataset) turn() error {
	if len(d.files) == d.at+1 {
		return io.EOF
	}
	next := d.files[d.at+1]
	src, err := openSource(next, d.wanted)
	if err != nil {
		return datasetError(next.place, err)
	}
	if err := sameColumns(d.info, src.info()); err != nil {
		return errors.Join(datasetError(next.place, err), src.close())
	}
	err = d.source.close()
	d.source, d.at = src, d.at+1
	return err
}
