package configs

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"
)

// valueError is a value of the wrong type.
type valueError struct {
	got  any
	want string
}

func (e *valueError) Error() string {
	if s, ok := e.got.(string); ok {
		return fmt.Sprintf("want %s, got %q", e.want, s)
	}
	return fmt.Sprintf("want %s, got %v", e.want, e.got)
}

// strictly makes viper's decoder refuse what it would bend: it truncates
// fractions, counts true as 1 and splits texts at commas.
func strictly(d *mapstructure.DecoderConfig) {
	d.WeaklyTypedInput = false
	d.DecodeHook = func(_, to reflect.Type, from any) (any, error) { return coerce(from, to) }
}

// coerce converts a value of a flag, a variable or a YAML file to the type of
// its field, or says what the field wants. Variables and some flags arrive as
// text, so text is parsed, whoever gave it.
func coerce(from any, to reflect.Type) (any, error) {
	text, isText := from.(string)
	switch {
	case to == reflect.TypeFor[time.Duration]():
		if d, ok := from.(time.Duration); ok {
			return d, nil
		}
		if d, err := time.ParseDuration(text); isText && err == nil {
			return d, nil
		}
		return nil, &valueError{from, "a duration such as 30s"}
	case to.Kind() == reflect.Int:
		if i, ok := whole(from); ok && i <= math.MaxInt {
			return int(i), nil
		}
		if i, err := strconv.Atoi(fmt.Sprint(from)); err == nil {
			return i, nil
		}
		return nil, &valueError{from, "a whole number"}
	case to.Kind() == reflect.Uint64:
		if u, ok := whole(from); ok {
			return u, nil
		}
		if u, err := strconv.ParseUint(fmt.Sprint(from), 10, 64); err == nil {
			return u, nil
		}
		return nil, &valueError{from, "a whole number from 0 to 18446744073709551615"}
	case to.Kind() == reflect.Float64:
		if f, ok := from.(float64); ok {
			return f, nil
		}
		if f, err := strconv.ParseFloat(fmt.Sprint(from), 64); err == nil {
			return f, nil
		}
		return nil, &valueError{from, "a number"}
	case to.Kind() == reflect.Bool:
		if b, err := strconv.ParseBool(fmt.Sprint(from)); err == nil {
			return b, nil
		}
		return nil, &valueError{from, "true or false"}
	case to == reflect.TypeFor[Lanes]():
		switch from := from.(type) {
		case Lanes:
			return from, nil
		case string:
			return Lanes(from), nil
		case int:
			return Lanes(strconv.Itoa(from)), nil
		}
		return nil, &valueError{from, "a whole number, or " + LanesAuto}
	case to == reflect.TypeFor[EarlyStopping]():
		if isText {
			return EarlyStopping(text), nil
		}
		if e, ok := from.(EarlyStopping); ok {
			return e, nil
		}
		if b, ok := from.(bool); ok { // as YAML reads true
			return EarlyStopping(strconv.FormatBool(b)), nil
		}
		return nil, &valueError{from, "true, false or never"}
	case to.Kind() == reflect.String:
		if isText {
			return text, nil
		}
		return nil, &valueError{from, "a text (in quotes)"}
	case to == reflect.TypeFor[int32]():
		return token(from)
	case to == reflect.TypeFor[[]int32]():
		return tokens(from)
	case to == reflect.TypeFor[map[int32]float64]():
		return biases(from)
	case to.Kind() == reflect.Slice:
		return texts(from)
	}
	return from, nil // a group; its fields come one by one
}

// whole accepts a float that is a whole number, which is how YAML reads 1e6.
func whole(from any) (uint64, bool) {
	f, ok := from.(float64)
	return uint64(max(f, 0)), ok && f >= 0 && f < 1<<63 && f == math.Trunc(f)
}

// texts converts to []string what YAML makes of a list, or a list written as
// YAML in a variable.
func texts(from any) ([]string, error) {
	wrong := &valueError{from, `a list of texts such as ["\n", "END"]`}
	switch list := from.(type) {
	case []string:
		return list, nil
	case []any:
		out := make([]string, len(list))
		for i, element := range list {
			s, ok := element.(string)
			if !ok {
				return nil, wrong
			}
			out[i] = s
		}
		return out, nil
	case string:
		var inside []any
		if err := yaml.Unmarshal([]byte(list), &inside); err != nil || inside == nil {
			return nil, wrong
		}
		return texts(inside)
	}
	return nil, wrong
}
