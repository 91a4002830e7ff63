package configs

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

const logitBias = "sampling.logit_bias"

// token reads a token id.
func token(from any) (int32, error) {
	if id, ok := from.(int32); ok {
		return id, nil
	}
	if id, err := coerce(from, reflect.TypeFor[int]()); err == nil && id.(int) >= 0 && id.(int) <= math.MaxInt32 {
		return int32(id.(int)), nil
	}
	return 0, &valueError{from, "a token id from 0 to 2147483647"}
}

// tokens reads what YAML makes of a list of token ids, a list written as YAML
// in a variable, or what the repeated flag was given.
func tokens(from any) ([]int32, error) {
	switch list := from.(type) {
	case []int32:
		return list, nil
	case []string:
		return each(list)
	case []any:
		return each(list)
	case string:
		var inside []any
		if err := yaml.Unmarshal([]byte(list), &inside); err == nil && inside != nil {
			return each(inside)
		}
	}
	return nil, &valueError{from, "a list of token ids such as [0, 198]"}
}

func each[T any](list []T) ([]int32, error) {
	ids := make([]int32, len(list))
	for i, element := range list {
		var err error
		if ids[i], err = token(element); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// biases reads what biasesOf has read of a file, a map written as YAML in a
// variable, or what the repeated flag was given.
func biases(from any) (map[int32]float64, error) {
	switch m := from.(type) {
	case map[int32]float64:
		return m, nil
	case []string:
		read := map[int32]float64{}
		for _, pair := range m {
			id, bias, _ := strings.Cut(pair, "=")
			if err := addBias(read, id, bias); err != nil {
				return nil, err
			}
		}
		return read, nil
	case string:
		var root yaml.Node
		if err := yaml.Unmarshal([]byte(m), &root); err == nil && len(root.Content) > 0 && root.Content[0].Kind == yaml.MappingNode {
			return biasesOf(root.Content[0])
		}
	}
	return nil, &valueError{from, "a map such as {198: -100}"}
}

// biasesOf reads a map from token ids to numbers.
func biasesOf(node *yaml.Node) (map[int32]float64, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return nil, errors.New("want a map such as {198: -100}")
	}
	read := map[int32]float64{}
	for i := 0; i < len(node.Content); i += 2 {
		var id, bias any
		if err := errors.Join(node.Content[i].Decode(&id), node.Content[i+1].Decode(&bias)); err != nil {
			return nil, err
		}
		if err := addBias(read, id, bias); err != nil {
			return nil, err
		}
	}
	return read, nil
}

func addBias(to map[int32]float64, name, value any) error {
	id, err := token(name)
	if err != nil {
		return err
	}
	if _, twice := to[id]; twice {
		return fmt.Errorf("token %d: given twice; keep one", id)
	}
	bias, err := coerce(value, reflect.TypeFor[float64]())
	if err != nil {
		return &valueError{value, fmt.Sprintf("a number for token %d", id)}
	}
	to[id] = bias.(float64)
	return nil
}
