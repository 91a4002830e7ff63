package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is a YAML file whose every key is a setting's.
type document struct {
	values  map[string]any    // nested, without the provider options
	options map[string]string // the provider options, case kept
	origin  map[string]string // path to "file:line"
}

// readFile reads the configuration file at path, which was given at place.
func readFile(path, place string) (document, error) {
	err := regular(path)
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return document{}, &UsageError{
			Msg:    fmt.Sprintf("cannot read configuration file %s: %v", path, cause(err)),
			Origin: place, Err: err,
		}
	}
	bad := func(err error) (document, error) {
		return document{}, &UsageError{Msg: fmt.Sprintf("configuration file %s: %v", path, err), Err: err}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	if err := decoder.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return bad(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return bad(errors.New("more than one YAML document; keep one"))
	}
	doc := document{origin: map[string]string{}}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" { // empty, or comments alone
		return doc, nil
	}
	if doc.values, err = doc.group(path, "", root.Content[0]); err != nil {
		return document{}, err
	}
	return doc, nil
}

// group reads the settings below prefix ("" or "sampling.").
func (d *document) group(file, prefix string, node *yaml.Node) (map[string]any, error) {
	at := func(n *yaml.Node) string { return fmt.Sprintf("%s:%d", file, n.Line) }
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		name := strings.TrimSuffix(prefix, ".")
		return nil, &UsageError{Key: name, Origin: at(node), Msg: "want settings below it, as in \"key: value\""}
	}
	values := map[string]any{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		path := prefix + name.Value
		isGroup, isKey := false, false
		for _, k := range keys {
			isKey = isKey || k.path == path
			isGroup = isGroup || strings.HasPrefix(k.path, path+".")
		}
		if _, twice := values[name.Value]; twice || d.origin[path] != "" {
			return nil, &UsageError{Key: path, Origin: at(name), Msg: "given twice; keep one"}
		}
		switch {
		case value.Tag == "!!null" && (isKey || isGroup): // as if it were not there
		case isGroup:
			below, err := d.group(file, path+".", value)
			if err != nil {
				return nil, err
			}
			values[name.Value] = below
		case path == providerOptions:
			options, err := optionsOf(value)
			if err != nil {
				return nil, &UsageError{Key: path, Origin: at(value), Msg: err.Error(), Err: err}
			}
			d.options, d.origin[path] = options, at(name)
		case path == logitBias: // viper would read the ids for names of settings
			biases, err := biasesOf(value)
			if err != nil {
				return nil, &UsageError{Key: path, Origin: at(value), Msg: err.Error(), Err: err}
			}
			values[name.Value], d.origin[path] = biases, at(name)
		case isKey:
			var decoded any
			if err := value.Decode(&decoded); err != nil {
				return nil, &UsageError{Key: path, Origin: at(value), Msg: err.Error(), Err: err}
			}
			values[name.Value], d.origin[path] = decoded, at(name)
		default:
			return nil, unknownKey(path, at(name))
		}
	}
	return values, nil
}

func unknownKey(path, place string) error {
	msg := "unknown key"
	if near, ok := nearest(path); ok {
		msg += "; did you mean " + near.path + "?"
	}
	return &UsageError{Key: path, Origin: place, Msg: msg}
}

// parseOptions reads a map in one line, as a variable holds it.
func parseOptions(text string) (map[string]string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil || len(root.Content) == 0 {
		return nil, fmt.Errorf("want a map such as {device_id: 0}, got %q", text)
	}
	return optionsOf(root.Content[0])
}

// optionsOf reads name: value pairs, the values as they are written.
func optionsOf(node *yaml.Node) (map[string]string, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return nil, errors.New("want a map such as {device_id: 0}")
	}
	options := map[string]string{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
			return nil, fmt.Errorf("option %s: want one value", name)
		}
		if _, twice := options[name]; twice {
			return nil, fmt.Errorf("option %s: given twice; keep one", name)
		}
		options[name] = value.Value
	}
	return options, nil
}
