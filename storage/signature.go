package storage

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/draftmill/draftmill/storage/bucket"
)

// signatureFile is an ed25519 signature, 64 bytes, of manifest.json's bytes.
const signatureFile = "manifest.sig"

// ErrNotSigned is a job without a signature.
var ErrNotSigned = errors.New("the job is not signed")

// Sign signs the manifest of a complete job. It covers every result file, by its
// digest, and the specification. Making a part of the job again removes it.
func (j *Job) Sign(ctx context.Context, key ed25519.PrivateKey) error {
	lock, err := j.wait(ctx, marksLock)
	if err != nil {
		return wrapf(err, "sign job %s", j.name)
	}
	defer release(lock)
	data, err := j.b.Get(ctx, manifestFile)
	if err != nil {
		return fmt.Errorf("sign job %s: %w", j.name, err)
	}
	return wrapf(j.b.Replace(ctx, signatureFile, ed25519.Sign(key, data)), "sign job %s", j.name)
}

// Signature is the signature of the manifest, ErrNotSigned without one.
func (j *Job) Signature() ([]byte, error) {
	data, err := j.b.Get(context.Background(), signatureFile)
	if bucket.NotExist(err) {
		return nil, fmt.Errorf("read the signature of job %s: %w", j.name, ErrNotSigned)
	}
	return data, wrapf(err, "read the signature of job %s", j.name)
}

// CheckSignature reports whether the manifest is the one that the owner of the
// key signed; the error says why not.
func (j *Job) CheckSignature(key ed25519.PublicKey) error {
	signature, err := j.Signature()
	if err != nil {
		return err
	}
	data, err := j.b.Get(context.Background(), manifestFile)
	if err != nil {
		return fmt.Errorf("check the signature of job %s: %w", j.name, err)
	}
	if !ed25519.Verify(key, data, signature) {
		return fmt.Errorf("check the signature of job %s: %s was changed, or signed with another key", j.name, manifestFile)
	}
	return nil
}
