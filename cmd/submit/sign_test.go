package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/configs"
)

// TestSignature: a signed job is checked with its public key; an edit, another
// key and no signature are found. Where openssl is there, it agrees.
func TestSignature(t *testing.T) {
	dir := t.TempDir()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	private := write("key.pem", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(pub)
	public := write("key.pub", "PUBLIC KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(other)
	another := write("other.pub", "PUBLIC KEY", der, err)

	folder := smallJob(t, dir)
	if done, err := folder.Finalize(t.Context()); err != nil || !done {
		t.Fatal(err)
	}
	verify := func(pubkey string) (string, error) { return output("verify", folder.Dir(), "--pubkey", pubkey) }

	if _, err := verify(public); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("without a signature: %v", err)
	}
	loaded, err := signingKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.Sign(t.Context(), loaded); err != nil {
		t.Fatal(err)
	}
	if text, err := verify(public); err != nil || !strings.Contains(text, "signature") {
		t.Errorf("%v: %s", err, text)
	}
	if text, err := output("verify", folder.Dir()); err != nil || !strings.Contains(text, "--pubkey") {
		t.Errorf("the signature is not mentioned: %v: %s", err, text)
	}
	if _, err := verify(another); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("with another key: %v", err)
	}
	manifest := filepath.Join(folder.Dir(), "manifest.json")
	if openssl, err := exec.LookPath("openssl"); err == nil {
		cmd := exec.Command(openssl, "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", manifest, "-sigfile", filepath.Join(folder.Dir(), "manifest.sig"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("openssl: %v: %s", err, out)
		}
	} else if os.Getenv("CI") != "" {
		t.Error("openssl is missing")
	}
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, append(data, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := verify(public); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a changed manifest: %v", err)
	}
	// Finalizing makes the manifest anew: the signature is of another.
	if done, err := folder.Finalize(t.Context()); err != nil || !done {
		t.Fatal(err)
	}
	if _, err := verify(public); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("after another manifest: %v", err)
	}

	var usage *configs.UsageError
	for _, path := range []string{public, manifest, filepath.Join(dir, "none")} {
		if _, err := signingKey(path); !errors.As(err, &usage) {
			t.Errorf("private key %s: %v", path, err)
		}
	}
	for _, path := range []string{private, manifest} {
		if _, err := verify(path); !errors.As(err, &usage) {
			t.Errorf("public key %s: %v", path, err)
		}
	}
}
