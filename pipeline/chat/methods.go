package chat

import (
	"errors"
	"reflect"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// methods are those of Python's types: the library's, and in place of those
// that differ from Python ours.
func methods() exec.Methods {
	m := builtins.Methods
	str := map[string]exec.Method[string]{}
	for _, name := range libraryMethods {
		if method, ok := m.Str.Get(name); ok {
			str[name] = plainly(method)
		}
	}
	for name, method := range textMethods {
		str[name] = func(self string, _ *exec.Value, args *exec.VarArgs) (any, error) { return method(self, args) }
	}
	dict := map[string]exec.Method[map[string]any]{}
	for name, method := range dictMethods {
		other, _ := m.Dict.Get(name)
		dict[name] = func(self map[string]any, value *exec.Value, args *exec.VarArgs) (any, error) {
			if d, ok := value.Interface().(*exec.Dict); ok {
				return method(d, args)
			}
			return other(self, value, args)
		}
	}
	m.Str, m.Dict = exec.NewMethodSet(str), exec.NewMethodSet(dict)
	return m
}

// libraryMethods are the methods of texts that are taken from the library.
var libraryMethods = []string{
	"capitalize", "casefold", "center", "find", "format", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric",
	"isspace", "istitle", "isupper", "join", "ljust", "lower", "partition", "removeprefix", "removesuffix", "rfind", "rjust", "rpartition",
	"splitlines", "swapcase", "title", "upper", "zfill",
}

// plainly gives the texts that a method returns their plain type: the library's
// own type is no text to it, and has no methods.
func plainly(method exec.Method[string]) exec.Method[string] {
	return func(self string, value *exec.Value, args *exec.VarArgs) (any, error) {
		result, err := method(self, value, args)
		if err != nil {
			return nil, err
		}
		switch v := reflect.ValueOf(result); v.Kind() {
		case reflect.String:
			return v.String(), nil
		case reflect.Slice:
			list := make([]any, v.Len())
			for i := range list {
				list[i] = v.Index(i).Interface()
				if item := v.Index(i); item.Kind() == reflect.String {
					list[i] = item.String()
				}
			}
			return list, nil
		}
		return result, nil
	}
}

var errArguments = errors.New("a method of a text was called with other arguments than it takes")

// textMethods are methods of Python's str with their defaults.
var textMethods = map[string]func(self string, args *exec.VarArgs) (any, error){
	"strip": func(self string, args *exec.VarArgs) (any, error) {
		return strip(self, args, strings.TrimFunc)
	},
	"lstrip": func(self string, args *exec.VarArgs) (any, error) {
		return strip(self, args, strings.TrimLeftFunc)
	},
	"rstrip": func(self string, args *exec.VarArgs) (any, error) {
		return strip(self, args, strings.TrimRightFunc)
	},
	"replace": func(self string, args *exec.VarArgs) (any, error) {
		count, ok := -1, len(args.Args) >= 2
		if len(args.Args) > 2 {
			count = args.Args[2].Integer()
		} else if v := args.KwArgs["count"]; v != nil {
			count = v.Integer()
		}
		if !ok || !args.Args[0].IsString() || !args.Args[1].IsString() {
			return nil, errArguments
		}
		return strings.Replace(self, args.Args[0].String(), args.Args[1].String(), count), nil
	},
	"split": func(self string, args *exec.VarArgs) (any, error) {
		return split(self, args, strings.SplitN)
	},
	"rsplit": func(self string, args *exec.VarArgs) (any, error) {
		return split(self, args, splitRight)
	},
	"startswith": func(self string, args *exec.VarArgs) (any, error) { return affix(self, args, strings.HasPrefix) },
	"endswith":   func(self string, args *exec.VarArgs) (any, error) { return affix(self, args, strings.HasSuffix) },
	"count": func(self string, args *exec.VarArgs) (any, error) {
		if len(args.Args) != 1 || !args.Args[0].IsString() {
			return nil, errArguments
		}
		return strings.Count(self, args.Args[0].String()), nil
	},
}

func strip(self string, args *exec.VarArgs, trim func(string, func(rune) bool) string) (any, error) {
	if len(args.Args) == 0 || args.Args[0].IsNil() {
		return trim(self, unicode.IsSpace), nil
	}
	if !args.Args[0].IsString() {
		return nil, errArguments
	}
	set := args.Args[0].String()
	return trim(self, func(r rune) bool { return strings.ContainsRune(set, r) }), nil
}

// split cuts a text at a separator, at most so many times; without one at white
// space.
func split(self string, args *exec.VarArgs, cut func(s, sep string, n int) []string) (any, error) {
	sep, most := args.KwArgs["sep"], args.KwArgs["maxsplit"]
	if len(args.Args) > 0 {
		sep = args.Args[0]
	}
	if len(args.Args) > 1 {
		most = args.Args[1]
	}
	n := -1
	if most != nil && most.Integer() >= 0 {
		n = most.Integer() + 1
	}
	var parts []string
	switch {
	case (sep == nil || sep.IsNil()) && n < 0:
		parts = strings.Fields(self)
	case sep == nil || !sep.IsString() || sep.String() == "":
		return nil, errArguments
	default:
		parts = cut(self, sep.String(), n)
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list, nil
}

// splitRight is strings.SplitN from the right.
func splitRight(s, sep string, n int) []string {
	var parts []string
	for n < 0 || len(parts)+1 < n {
		at := strings.LastIndex(s, sep)
		if at < 0 {
			break
		}
		parts = append([]string{s[at+len(sep):]}, parts...)
		s = s[:at]
	}
	return append([]string{s}, parts...)
}

// affix tells whether a text has one of the affixes that are given.
func affix(self string, args *exec.VarArgs, has func(s, affix string) bool) (any, error) {
	if len(args.Args) != 1 {
		return nil, errArguments
	}
	found := false
	if a := args.Args[0]; a.IsString() {
		found = has(self, a.String())
	} else {
		a.Iterate(func(_, _ int, one, _ *exec.Value) bool { found = found || has(self, one.String()); return true }, func() {})
	}
	return found, nil
}

// dictMethods keep the order of an object's members, which the library's do not.
var dictMethods = map[string]func(d *exec.Dict, args *exec.VarArgs) (any, error){
	"keys": func(d *exec.Dict, _ *exec.VarArgs) (any, error) {
		return each(d, func(p *exec.Pair) any { return p.Key.Interface() }), nil
	},
	"values": func(d *exec.Dict, _ *exec.VarArgs) (any, error) {
		return each(d, func(p *exec.Pair) any { return p.Value.Interface() }), nil
	},
	"items": func(d *exec.Dict, _ *exec.VarArgs) (any, error) {
		return each(d, func(p *exec.Pair) any { return []any{p.Key.Interface(), p.Value.Interface()} }), nil
	},
	"get": func(d *exec.Dict, args *exec.VarArgs) (any, error) {
		if len(args.Args) == 0 || len(args.Args) > 2 {
			return nil, errors.New("get of an object takes a name and a default")
		}
		if v := get(d, args.Args[0].String()); v != nil {
			return v, nil
		}
		if len(args.Args) == 2 {
			return args.Args[1].Interface(), nil
		}
		return nil, nil
	},
}

func each(d *exec.Dict, of func(*exec.Pair) any) []any {
	all := make([]any, len(d.Pairs))
	for i, p := range d.Pairs {
		all[i] = of(p)
	}
	return all
}
