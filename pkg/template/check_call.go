package template

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// resultType returns the type of a function's result; nil if it is unknown.
func (c *checker) resultType(function string) reflect.Type {
	switch function {
	case "not", "eq", "ne", "lt", "le", "gt", "ge":
		return boolType
	case "len":
		return intType
	case "date":
		return stringType
	}
	if f, ok := c.language.functions[function]; ok {
		return reflect.TypeOf(f.Do).Out(0)
	}
	return nil
}

// call checks the arguments of a function and returns the type of its result.
func (c *checker) call(n parse.Node, function string, args []reflect.Type) reflect.Type {
	custom, known := c.language.functions[function]
	c.calls += custom.Steps
	switch {
	case known:
		signature := reflect.TypeOf(custom.Do)
		fits := len(args) == signature.NumIn()
		for i := 0; fits && i < len(args); i++ {
			fits = args[i] == signature.In(i)
		}
		if !fits {
			c.add(n, "%s takes %s", function, describeParams(signature))
		}
	case !slices.Contains(builtin, function):
		c.add(n, "there is no function %s. Functions: %s", function, strings.Join(c.functions(), ", "))
	case function == "and", function == "or":
		if len(args) == 0 {
			c.add(n, "%s takes values", function)
			return nil
		}
		if slices.ContainsFunc(args, func(t reflect.Type) bool { return t != args[0] }) {
			return mixedType
		}
		return args[0]
	case function == "not":
		if len(args) != 1 {
			c.add(n, "not takes one value")
		}
	case function == "len":
		if len(args) != 1 || args[0] != stringType && args[0].Kind() != reflect.Slice {
			c.add(n, "len takes a list or a text")
		}
	case function == "date":
		if command, ok := n.(*parse.CommandNode); !ok || len(args) != 2 || args[1] != timeType || len(command.Args) < 2 ||
			command.Args[1].Type() != parse.NodeString {
			c.add(n, `date takes how to write it, as Go does for 2006-01-02 15:04:05, in quotes, and a time`)
		}
	default:
		ordered := function != "eq" && function != "ne"
		if len(args) < 2 || len(args) > 2 && function != "eq" ||
			slices.ContainsFunc(args, func(t reflect.Type) bool { return t != args[0] }) ||
			args[0] != stringType && args[0] != intType && (ordered || args[0] != boolType) {
			c.add(n, "%s takes two texts or two numbers", function)
		}
	}
	return c.resultType(function)
}

func (c *checker) functions() []string {
	all := slices.Clone(builtin)
	for name := range c.language.functions {
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// describeParams describes the parameters of a function.
func describeParams(f reflect.Type) string {
	labels := map[reflect.Type]string{
		stringType:                  "a text",
		intType:                     "a number",
		boolType:                    "true or false",
		reflect.TypeFor[[]string](): "a list of texts",
	}
	all := make([]string, f.NumIn())
	for i := range all {
		all[i] = cmp.Or(labels[f.In(i)], "a list")
	}
	return strings.Join(all, " and ")
}
