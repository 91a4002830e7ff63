package app

import (
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/storage/bucket"
)

// CheckPlaces says, as bad usage, that a dataset or an output folder is no path
// and no URL that is known.
func CheckPlaces(cfg configs.Config) error {
	for _, p := range []struct{ key, place string }{{"out", cfg.Out}, {"dataset", cfg.Dataset}} {
		if p.place == "" {
			continue
		}
		if err := bucket.Check(p.place); err != nil {
			return configs.Usagef("%s: %w", p.key, err)
		}
	}
	return nil
}
