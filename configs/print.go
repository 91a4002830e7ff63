package configs

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// YAML is the effective configuration as a file that [Load] reads, each
// setting with the place that gave it as a comment. User names, passwords and
// tokens in nats.url are blotted out.
func (c Config) YAML() string {
	root := &yaml.Node{Kind: yaml.MappingNode}
	groups := map[string]*yaml.Node{}
	for _, k := range keys {
		parent, name := root, k.path
		if group, leaf, nested := strings.Cut(k.path, "."); nested {
			if groups[group] == nil {
				groups[group] = &yaml.Node{Kind: yaml.MappingNode}
				root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: group}, groups[group])
			}
			parent, name = groups[group], leaf
		}
		node := encode(c.field(k.path).Interface())
		if k.path == "nats.url" {
			node = encode(redact(c.NATS.URL))
		}
		node.LineComment = c.Origin(k.path)
		parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, node)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		panic(fmt.Sprintf("configs: encode the configuration: %v", err))
	}
	return out.String()
}

// encode is value on one line. Texts are encoded by hand: the library's own
// choice of a block style breaks on those that begin with a line break.
func encode(value any) *yaml.Node {
	switch v := value.(type) {
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if strings.ContainsFunc(v, unicode.IsControl) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node
	case time.Duration:
		return encode(v.String())
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, text := range v {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle})
		}
		return list
	case []int32:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, id := range v {
			list.Content = append(list.Content, encode(id))
		}
		return list
	case map[int32]float64:
		biases := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, id := range slices.Sorted(maps.Keys(v)) {
			biases.Content = append(biases.Content, encode(id), encode(v[id]))
		}
		return biases
	case map[string]string:
		options := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			options.Content = append(options.Content, encode(name), encode(v[name]))
		}
		return options
	}
	node := new(yaml.Node)
	if err := node.Encode(value); err != nil {
		panic(fmt.Sprintf("configs: encode a %T: %v", value, err)) // every other field is a number or a truth value
	}
	return node
}

// field is the field at path, found by its tags.
func (c Config) field(path string) reflect.Value { return fieldOf(reflect.ValueOf(c), path) }

// fieldOf is the field of a Config, or of one that can be set, at path.
func fieldOf(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("mapstructure") == name {
				v = v.Field(i)
				break
			}
		}
	}
	return v
}

// redact blots out the user part of every URL of a list.
func redact(servers string) string {
	list := strings.Split(servers, ",")
	for i, server := range list {
		if u, err := parseServer(server); err == nil && u.User != nil {
			u.User = url.User("xxxxx")
			list[i] = u.String()
		} else if at := strings.LastIndexByte(server, '@'); err != nil && at >= 0 {
			list[i] = "xxxxx" + server[at:]
		}
	}
	return strings.Join(list, ",")
}
