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

// actionNames has the values of the tag required. A parameter, which has only one action, is required:"true".
var actionNames = map[string]Action{"create": Create, "true": Create, "edit": Edit}

// tags has the known keys, each with a function that returns the requirement that a value breaks; nil accepts any text.
var tags = map[string]func(value string) (requirement string){
	"json":      nil,
	"db":        nil,
	"path":      nil,
	"query":     nil,
	"format":    nil,
	"alias":     nil,
	"doc":       nil,
	"example":   nil,
	"enum":      checkList,
	"min":       checkNumber,
	"max":       checkNumber,
	"pattern":   checkPattern,
	"required":  checkRequired,
	"ext":       mustBe("true"),
	"future":    mustBe("true"),
	"recorded":  mustBe("false"),
	"lines":     mustBe("true"),
	"trim":      mustBe("false"),
	"open":      mustBe("true"),
	"ordered":   mustBe("true"),
	"transient": mustBe("true"),
}

// checkTag panics if a field's tag does not consist of key:"value" pairs, or has an unknown key or an invalid value.
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
			mistake("the unknown tag %s; known tags are %s", key, strings.Join(slices.Sorted(maps.Keys(tags)), ", "))
		}
		value, _ := strconv.Unquote(quoted)
		if check != nil {
			if requirement := check(value); requirement != "" {
				mistake("the tag %s:%q, which must be %s", key, value, requirement)
			}
		}
		rest = strings.TrimSpace(after[len(quoted):])
	}
}

func mustBe(one string) func(string) string {
	return func(value string) string {
		if value != one {
			return strconv.Quote(one)
		}
		return ""
	}
}

func checkList(value string) string {
	if slices.Contains(strings.Split(value, ","), "") {
		return "values with commas between"
	}
	return ""
}

func checkNumber(value string) string {
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		return "a whole number"
	}
	return ""
}

func checkPattern(value string) string {
	if _, err := regexp.Compile(value); err != nil {
		return "a regular expression"
	}
	return ""
}

func checkRequired(value string) string {
	for when := range strings.SplitSeq(value, ",") {
		if actionNames[when] == 0 {
			return "create, edit or both with a comma between; true of a parameter"
		}
	}
	return ""
}
