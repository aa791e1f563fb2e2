package schema

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// required is what the tag required can name. Of a parameter, which is always sent for the same, it is true.
var required = map[string]Occasion{"create": Create, "true": Create, "edit": Edit}

// tags are the keys that a tag can have, each with what its value must be; nil: any text.
var tags = map[string]func(value string) (must string){
	"json":     nil,
	"db":       nil,
	"path":     nil,
	"query":    nil,
	"format":   nil,
	"also":     nil,
	"doc":      nil,
	"example":  nil,
	"enum":     filled,
	"min":      number,
	"max":      number,
	"pattern":  expression,
	"required": occasion,
	"ext":      only("true"),
	"future":   only("true"),
	"recorded": only("false"),
	"blanks":   only("kept"),
	"order":    only("kept"),
	"kept":     only("false"),
}

// checkTag panics where a field's tag is not one of pairs of key:"value", or has a key or a value that means nothing here.
func checkTag(t reflect.Type, field reflect.StructField) {
	mistake := func(format string, args ...any) {
		panic(fmt.Sprintf("%s.%s has ", t, field.Name) + fmt.Sprintf(format, args...))
	}
	for rest := strings.TrimSpace(string(field.Tag)); rest != ""; {
		key, after, _ := strings.Cut(rest, ":")
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			mistake("a tag that is not of the form key:\"value\": %s", rest)
		}
		check, known := tags[key]
		if !known {
			mistake("the unknown tag %s; there are %s", key, strings.Join(slices.Sorted(maps.Keys(tags)), ", "))
		}
		value, _ := strconv.Unquote(quoted)
		if check != nil {
			if must := check(value); must != "" {
				mistake("the tag %s:%q, which must be %s", key, value, must)
			}
		}
		rest = strings.TrimSpace(after[len(quoted):])
	}
}

func only(one string) func(string) string {
	return func(value string) string {
		if value != one {
			return strconv.Quote(one)
		}
		return ""
	}
}

func filled(value string) string {
	if slices.Contains(strings.Split(value, ","), "") {
		return "values with commas between"
	}
	return ""
}

func number(value string) string {
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		return "a whole number"
	}
	return ""
}

func expression(value string) string {
	if _, err := regexp.Compile(value); err != nil {
		return "a regular expression"
	}
	return ""
}

func occasion(value string) string {
	for when := range strings.SplitSeq(value, ",") {
		if required[when] == 0 {
			return "create, edit or both with a comma between; true of a parameter"
		}
	}
	return ""
}
