//go:build ignore

// Command gen_settings writes docs/settings.md from the table in keys.go.
package main

import (
	"log"
	"os"

	"github.com/draftmill/draftmill/configs"
)

func main() {
	if err := os.WriteFile("../docs/settings.md", []byte(configs.Settings()), 0o644); err != nil {
		log.Fatal(err)
	}
}
