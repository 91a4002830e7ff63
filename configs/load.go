package configs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Load reads the configuration for the parsed flags fs: flags over environment
// over file over defaults (see the package's documentation). It checks names
// and types; ranges and files are for [Config.ValidateSubmit] and
// [Config.ValidateWorker]. Every error is a [*UsageError].
func Load(fs *pflag.FlagSet) (Config, error) {
	if err := checkEnv(os.Environ()); err != nil {
		return Config{}, err
	}
	path, place := configPath(fs)
	doc := document{origin: map[string]string{}}
	if path != "" {
		var err error
		if doc, err = readFile(path, place); err != nil {
			return Config{}, err
		}
	}

	c := Config{origin: doc.origin}
	v := viper.New()
	if err := v.MergeConfigMap(doc.values); err != nil {
		return Config{}, &UsageError{Msg: fmt.Sprintf("configuration file %s: %v", path, err), Err: err}
	}
	for _, k := range keys {
		env, flag := os.Getenv(k.env()), lookup(fs, k.flag)
		if env != "" {
			c.origin[k.path] = k.env()
		}
		if flag != nil && flag.Changed {
			c.origin[k.path] = "--" + k.flag
		}
		if k.path == providerOptions {
			continue
		}
		v.SetDefault(k.path, k.def)
		if err := v.BindEnv(k.path, k.env()); err != nil {
			return Config{}, fmt.Errorf("bind %s: %w", k.env(), err)
		}
		if flag == nil || !flag.Changed {
			continue
		}
		// viper reads a repeatable flag back from CSV, which is not faithful
		// to carriage returns: give it the list itself.
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			v.Set(k.path, list.GetSlice())
		} else if err := v.BindPFlag(k.path, flag); err != nil {
			return Config{}, fmt.Errorf("bind --%s: %w", k.flag, err)
		}
	}
	if err := v.UnmarshalExact(&c, strictly); err != nil {
		return Config{}, c.decodeError(err)
	}
	if err := c.setProviderOptions(doc.options); err != nil {
		return Config{}, err
	}
	// The demo draft speaks the demo target's vocabulary and no other's, and
	// the other way round.
	if c.IsSet("target") && !c.IsSet("draft") {
		c.Draft = ""
	}
	if c.IsSet("draft") && !c.IsSet("target") {
		c.Target = ""
	}
	if c.Lookahead != LookaheadFixed && !c.IsSet("k") {
		c.K = adaptiveK
	}
	c.beamDefaults()
	return c, nil
}

// providerOptions bypasses viper, which folds the keys of maps to lower case:
// execution providers tell dawnBackendType from dawnbackendtype.
const providerOptions = "ort.provider_options"

func (c *Config) setProviderOptions(fromFile map[string]string) error {
	c.ORT.ProviderOptions = fromFile
	text := os.Getenv(key{path: providerOptions}.env())
	if text == "" {
		return nil
	}
	options, err := parseOptions(text)
	if err != nil {
		return c.usage(providerOptions, err, "%v", err)
	}
	c.ORT.ProviderOptions = options
	return nil
}

// configPath is the configuration file's path and where that was given.
func configPath(fs *pflag.FlagSet) (path, place string) {
	if f := lookup(fs, "config"); f != nil && f.Changed {
		return f.Value.String(), "--config"
	}
	return os.Getenv(configEnv), configEnv
}

const configEnv = envPrefix + "CONFIG"

func lookup(fs *pflag.FlagSet, name string) *pflag.Flag {
	if fs == nil || name == "" {
		return nil
	}
	return fs.Lookup(name)
}

// checkEnv refuses a DRAFTMILL_ variable that no setting reads: a misspelled one
// would otherwise be passed over in silence.
func checkEnv(environ []string) error {
	slices.Sort(environ) // so that of several the same one is named
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		suffix, ours := strings.CutPrefix(name, envPrefix)
		known := name == configEnv || slices.ContainsFunc(keys, func(k key) bool { return k.env() == name })
		if !ours || known || value == "" {
			continue
		}
		msg := "unknown environment variable " + name
		if near, ok := nearest(suffix); ok {
			msg += "; did you mean " + near.env() + "?"
		} else {
			msg += "; unset it"
		}
		return &UsageError{Msg: msg}
	}
	return nil
}

// decodeError turns the first of viper's decoding errors into one line.
func (c Config) decodeError(err error) error {
	var decode *mapstructure.DecodeError
	if !errors.As(err, &decode) {
		return &UsageError{Msg: err.Error(), Err: err}
	}
	var value *valueError
	if errors.As(decode, &value) {
		return c.usage(decode.Name(), err, "%s", value.Error())
	}
	return c.usage(decode.Name(), err, "%v", decode.Unwrap())
}
