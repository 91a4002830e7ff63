package configs

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// paths lists the settings that the fields of a struct stand for.
func paths(prefix string, of reflect.Type) []string {
	var out []string
	for i := range of.NumField() {
		field := of.Field(i)
		path := prefix + field.Tag.Get("mapstructure")
		switch {
		case !field.IsExported():
		case field.Type.Kind() == reflect.Struct:
			out = append(out, paths(path+".", field.Type)...)
		default:
			out = append(out, path)
		}
	}
	return out
}

func TestKeysAreTheFields(t *testing.T) {
	var table []string
	for _, k := range keys {
		table = append(table, k.path)
		if got, want := reflect.TypeOf(k.def), (Config{}).field(k.path).Type(); got != want {
			t.Errorf("%s: the default is a %v, the field a %v", k.path, got, want)
		}
		if (k.flag == "") != (k.on == neither) || k.usage == "" {
			t.Errorf("%s: flag %q, users %d and usage %q do not go together", k.path, k.flag, k.on, k.usage)
		}
	}
	fields := paths("", reflect.TypeFor[Config]())
	slices.Sort(table)
	slices.Sort(fields)
	if !slices.Equal(table, fields) {
		t.Errorf("\n keys %v\nfields %v", table, fields)
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name     string
		register func(*pflag.FlagSet)
		want     string
	}{
		{"submit", SubmitFlags, "beams chat chat-date config dataset detach device draft draft-beams drafter early-stopping forbid frequency-penalty id-column job json k lanes length-penalty limit log-format log-level logit-bias lookahead margin max-new-tokens " +
			"min-new-tokens min-p mode n nats no-repeat-ngram-size ort-library out presence-penalty priority prompt-column repetition-penalty " +
			"rule sampler seed shard-rows sign stop system target temperature template threads top-k top-p workers"},
		{"jobs", JobFlags, "config json log-format log-level nats out"},
		{"worker", WorkerFlags, "config device draft drafter lanes log-format log-level metrics nats ort-library out sampler target threads"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			test.register(fs)
			var names []string
			fs.VisitAll(func(f *pflag.Flag) {
				names = append(names, f.Name)
				if f.Usage == "" {
					t.Errorf("--%s has no usage", f.Name)
				}
			})
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	tests := map[string]string{
		"max_token":         "",
		"MAX-NEW-TOKEN":     "sampling.max_new_tokens",
		"topp":              "sampling.top_p",
		"prompt-column":     "prompt_column",
		"ORT_LIB":           "",
		"LIBRARY":           "ort.library",
		"sampling.k":        "k",
		"url":               "nats.url",
		"x":                 "",
		"":                  "",
		"completely_other!": "",
	}
	for unknown, want := range tests {
		k, ok := nearest(unknown)
		if !ok {
			k.path = ""
		}
		if k.path != want {
			t.Errorf("%q: got %q, want %q", unknown, k.path, want)
		}
	}
}

func TestYAMLLoadsAgain(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--config", "testdata/every-key.good.yaml"},
		{"--config", "xsum.yaml", "--stop", "a\r\n\t: #b", "--stop", " ", "--seed", "18446744073709551615", "--job", "007"},
	} {
		c := mustLoad(t, SubmitFlags, args...)
		again := mustLoad(t, SubmitFlags, "--config", write(t, "again.yaml", c.YAML()))
		again.origin = c.origin
		for _, k := range keys { // an empty list and none are the same setting
			got, want := again.field(k.path), c.field(k.path)
			empty := (got.Kind() == reflect.Slice || got.Kind() == reflect.Map) && got.Len() == 0 && want.Len() == 0
			if !empty && !reflect.DeepEqual(got.Interface(), want.Interface()) {
				t.Errorf("%q: %s: got %#v, want %#v\n%s", args, k.path, got, want, c.YAML())
			}
		}
	}
}

func TestYAMLSaysWhereFrom(t *testing.T) {
	t.Setenv("DRAFTMILL_SAMPLING_TOP_K", "40")
	c := mustLoad(t, SubmitFlags, "--config", "humaneval.yaml", "--k", "2", "--nats", "nats://me:secret@h:4222,token@b")
	text := c.YAML()
	for _, line := range []string{
		"k: 2 # --k",
		"  top_k: 40 # DRAFTMILL_SAMPLING_TOP_K",
		"  top_p: 0.95 # humaneval.yaml:37",
		`  stop: ["\nclass", "\ndef", "\n#", "\nif", "\nprint"] # humaneval.yaml:43`,
		"  n: 1 # humaneval.yaml:39",
		"  ack_wait: 30s # default",
		"  url: nats://xxxxx@h:4222,nats://xxxxx@b # --nats",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "token@") {
		t.Errorf("a secret is printed:\n%s", text)
	}
}

func TestUsagef(t *testing.T) {
	inner := errors.New("port in use")
	err := Usagef("listen: %w\nsecond line", inner)
	if err.Error() != "listen: port in use second line" || !errors.Is(err, inner) {
		t.Errorf("got %q", err)
	}
}
