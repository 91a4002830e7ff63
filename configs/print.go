package configs

import (
	"bytes"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

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
		value := c.field(k.path).Interface()
		switch v := value.(type) {
		case time.Duration:
			value = v.String()
		case string:
			if k.path == "nats.url" {
				value = redact(v)
			}
		}
		node := new(yaml.Node)
		if err := node.Encode(value); err != nil {
			panic(fmt.Sprintf("configs: encode %s: %v", k.path, err)) // every field's type is YAML's
		}
		if node.Kind == yaml.ScalarNode && node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			node.Style = yaml.DoubleQuotedStyle
		}
		if node.Kind != yaml.ScalarNode {
			node.Style = yaml.FlowStyle
			for _, element := range node.Content {
				element.Style = yaml.DoubleQuotedStyle
			}
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

// field is the field at path, found by its tags.
func (c Config) field(path string) reflect.Value {
	v := reflect.ValueOf(c)
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
