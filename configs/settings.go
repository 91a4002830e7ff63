package configs

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

//go:generate go run gen_settings.go

// Settings is docs/settings.md: every setting with its flag, variable, default,
// meaning and bounds, as Markdown.
func Settings() string {
	var b strings.Builder
	b.WriteString(`# Settings

<!-- Written by go generate ./configs from configs/keys.go: change that file, not this one. -->

A flag goes over the environment variable, that over the YAML file of ` + "`--config`" + ` (or ` + "`DRAFTMILL_CONFIG`" + `), that over
the default. ` + "`--top-p 0.9`, `DRAFTMILL_SAMPLING_TOP_P=0.9` and `sampling: {top_p: 0.9}`" + ` are one setting. Lists and maps are
written as YAML in one line in a variable: ` + "`DRAFTMILL_SAMPLING_STOP='[\"\\nclass\"]'`" + `. Relative paths are relative to the
current directory wherever they stand. What is unknown or out of bounds is one line of error and exit code 2.

The flags are those of ` + "`submit`" + `; what ` + "`worker`" + ` takes too is marked *both*, what it takes alone *worker*.
`)
	group := "-"
	for _, k := range ordered() {
		name, _, nested := strings.Cut(k.path, ".")
		if !nested {
			name = ""
		}
		if name != group {
			group = name
			title := map[string]string{"": "Jobs, models, workers", "sampling": "Sampling", "nats": "Queue", "ort": "ONNX Runtime", "log": "Log"}[name]
			fmt.Fprintf(&b, "\n## %s\n\n| setting, flag, variable | default | meaning | bounds |\n|---|---|---|---|\n", title)
		}
		value, meaning := pflag.UnquoteUsage(&pflag.Flag{Usage: k.usage, Value: text("")})
		names := "`" + k.path + "`"
		if k.flag != "" {
			names += "<br>`--" + strings.TrimSpace(k.flag+" "+shown(k, value)) + "`"
			if k.on == both {
				names += " *both*"
			} else if k.on == worker {
				names += " *worker*"
			}
		}
		fmt.Fprintf(&b, "| %s<br>`%s` | %s | %s | %s |\n", names, k.env(), k.shownDefault(), cell(meaning), cell(k.bounds()))
	}
	return b.String()
}

// ordered are the settings without a group first, else as in the table.
func ordered() []key {
	var all, nested []key
	for _, k := range keys {
		if strings.Contains(k.path, ".") {
			nested = append(nested, k)
		} else {
			all = append(all, k)
		}
	}
	return append(all, nested...)
}

// shown is the name of a flag's value; a switch has none.
func shown(k key, value string) string {
	if _, isSwitch := k.def.(bool); isSwitch {
		return ""
	}
	return value
}

// text is a pflag.Value whose usage needs no default name.
type text string

func (t text) String() string   { return string(t) }
func (t text) Set(string) error { return nil }
func (t text) Type() string     { return "string" }

func (k key) shownDefault() string {
	switch v := reflect.ValueOf(k.def); {
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map, v.Kind() == reflect.String && v.Len() == 0:
		return "none"
	default:
		return fmt.Sprintf("`%v`", k.def)
	}
}

// cell is a text in a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// bounds is what the checks say that they want of a value that can be none:
// they are asked, so that this cannot differ from what they do.
func (k key) bounds() string {
	for _, bad := range []any{"\x01", -1 << 62, 1 << 62, math.NaN(), -1.0, -time.Hour, Lanes("\x01"), EarlyStopping("\x01"), []string{""}, map[int32]float64{0: math.Inf(1)}} {
		if reflect.TypeOf(bad) != reflect.TypeOf(k.def) {
			continue
		}
		c := Config{Out: "out"}
		root := reflect.ValueOf(&c).Elem()
		for _, other := range keys {
			fieldOf(root, other.path).Set(reflect.ValueOf(other.def))
		}
		c.Dataset = "FILE"
		fieldOf(root, k.path).Set(reflect.ValueOf(bad))
		p := &problems{c: c}
		p.values()
		p.submitValues()
		if p.first != nil && p.first.Key == k.path {
			said, _, _ := strings.Cut(p.first.Msg, ", got")
			said, _, _ = strings.Cut(said, "; ")
			return strings.TrimPrefix(strings.TrimPrefix(said, "token 0: "), "want ")
		}
	}
	return ""
}
