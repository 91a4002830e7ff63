package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"

	"github.com/draftmill/draftmill/configs"
)

// signingKey reads an ed25519 private key: PEM, PKCS #8, not encrypted.
func signingKey(path string) (ed25519.PrivateKey, error) {
	const remedy = "name a PEM file with an ed25519 private key: openssl genpkey -algorithm ed25519 -out key.pem"
	der, err := readPEM("--sign", path, "PRIVATE KEY", remedy)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, configs.Usagef("--sign: %s holds another kind of key; %s", path, remedy)
	}
	return key, nil
}

// publicKey reads an ed25519 public key: PEM, SubjectPublicKeyInfo.
func publicKey(path string) (ed25519.PublicKey, error) {
	const remedy = "name a PEM file with an ed25519 public key: openssl pkey -in key.pem -pubout -out key.pub"
	der, err := readPEM("--pubkey", path, "PUBLIC KEY", remedy)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	key, ok := parsed.(ed25519.PublicKey)
	if err != nil || !ok {
		return nil, configs.Usagef("--pubkey: %s holds another kind of key; %s", path, remedy)
	}
	return key, nil
}

func readPEM(flag, path, kind, remedy string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, configs.Usagef("%s: %w; %s", flag, err, remedy)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != kind {
		return nil, configs.Usagef("%s: %s is not a PEM file of type %s; %s", flag, path, kind, remedy)
	}
	return block.Bytes, nil
}
