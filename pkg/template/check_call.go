package template

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// answer is the type of what a function answers, whatever it is given; nil where that is not known.
func (c *checker) answer(function string) reflect.Type {
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

// call checks what a function is given.
func (c *checker) call(n parse.Node, function string, given []reflect.Type) reflect.Type {
	custom, known := c.language.functions[function]
	c.calls += custom.Steps
	switch {
	case known:
		takes := reflect.TypeOf(custom.Do)
		fits := len(given) == takes.NumIn()
		for i := 0; fits && i < len(given); i++ {
			fits = given[i] == takes.In(i)
		}
		if !fits {
			c.add(n, "%s takes %s", function, described(takes))
		}
	case !slices.Contains(builtin, function):
		c.add(n, "there is no function %s: there are %s", function, strings.Join(c.functions(), ", "))
	case function == "and", function == "or":
		if len(given) == 0 {
			c.add(n, "%s takes values", function)
			return nil
		}
		if slices.ContainsFunc(given, func(t reflect.Type) bool { return t != given[0] }) {
			return mixedType
		}
		return given[0]
	case function == "not":
		if len(given) != 1 {
			c.add(n, "not takes one value")
		}
	case function == "len":
		if len(given) != 1 || given[0] != stringType && given[0].Kind() != reflect.Slice {
			c.add(n, "len takes a list or a text")
		}
	case function == "date":
		if command, ok := n.(*parse.CommandNode); !ok || len(given) != 2 || given[1] != timeType || len(command.Args) < 2 ||
			command.Args[1].Type() != parse.NodeString {
			c.add(n, `date takes how to write it, as Go does for 2006-01-02 15:04:05, in quotes, and a time`)
		}
	default:
		ordered := function != "eq" && function != "ne"
		if len(given) < 2 || len(given) > 2 && function != "eq" ||
			slices.ContainsFunc(given, func(t reflect.Type) bool { return t != given[0] }) ||
			given[0] != stringType && given[0] != intType && (ordered || given[0] != boolType) {
			c.add(n, "%s takes two texts or two numbers", function)
		}
	}
	return c.answer(function)
}

func (c *checker) functions() []string {
	all := slices.Clone(builtin)
	for name := range c.language.functions {
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// described is what a function takes, in words.
func described(f reflect.Type) string {
	words := map[reflect.Type]string{
		stringType:                  "a text",
		intType:                     "a number",
		boolType:                    "true or false",
		reflect.TypeFor[[]string](): "a list of texts",
	}
	all := make([]string, f.NumIn())
	for i := range all {
		all[i] = cmp.Or(words[f.In(i)], "a list")
	}
	return strings.Join(all, " and ")
}
