package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ironplane/ironplane/pkg/client/operations"
)

// parameter is a parameter of an operation, with the name of its flag.
type parameter struct {
	operations.Parameter
	flag string
}

// value is a flag's value: the texts as they were typed. It is checked as far as that needs no request.
type value struct {
	parameter
	texts []string
}

var kindNames = map[string]string{
	"integer": "number", "number": "number", "boolean": "bool", "time": "time", "json": "json", "map": "name=value", "ref": "id",
	"name": "name", "string": "text",
}

func (v *value) String() string { return "" } // a flag has no default: what is left out is not sent

// Type is what the help shows for a value.
func (v *value) Type() string {
	switch {
	case v.Of != "":
		return v.Of
	case v.Secret:
		return "-|@file"
	case len(v.Enum) > 0 && len(v.Enum) <= 6:
		return strings.Join(v.Enum, "|")
	default:
		return kindNames[v.Kind]
	}
}

// Set checks a text and stores it.
func (v *value) Set(text string) error {
	if err := v.check(text); err != nil {
		return err
	}
	if !v.List && v.Kind != "map" {
		v.texts = nil
	}
	v.texts = append(v.texts, text)
	return nil
}

func (v *value) check(text string) error {
	var err error
	switch v.Kind {
	case "integer":
		if _, err = strconv.ParseInt(text, 10, 64); err != nil && v.Of == "" {
			return fmt.Errorf("%q is not a number", text)
		}
	case "number":
		if _, err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
	case "boolean":
		if _, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case "time":
		if _, err = parseTime(text, time.Now()); err != nil {
			return err
		}
	case "map":
		if !strings.Contains(text, "=") {
			return fmt.Errorf("%q does not have the form name=value", text)
		}
	}
	if len(v.Enum) > 0 && !slices.Contains(v.Enum, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(v.Enum, ", "))
	}
	if v.Secret && text != "-" && !strings.HasPrefix(text, "@") {
		return fmt.Errorf("a secret cannot be an argument, because other users of the machine can see arguments. " +
			"Use - to type it or to read it from standard input, or @FILE")
	}
	return nil
}

// parseTime parses a time in ISO 8601, a date, or how long ago or ahead it is: -24h, +90m.
func parseTime(text string, now time.Time) (time.Time, error) {
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		if d, err := time.ParseDuration(text); err == nil {
			return now.Add(d), nil
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-11-20T10:00:00Z, 2026-11-20, -24h or +90m", text)
}

// flagName returns the flag of a parameter: billing-id for billing_id, v4-address for v4.address. Where an id is a reference, the
// flag is named for the item: group for group_id, owner for owner.id.
func flagName(p operations.Parameter, used map[string]bool) string {
	name := p.Name
	if p.Of != "" {
		short := strings.TrimSuffix(strings.TrimSuffix(name, "_id"), ".id")
		if !used[slug(short)] {
			name = short
		}
	} else if short, ok := strings.CutSuffix(name, ".id"); ok && !used[slug(short)] {
		name = short
	}
	return slug(name)
}

// slug returns a name in lower case with hyphens.
func slug(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '_' || r == '.':
			b.WriteByte('-')
		case r >= 'A' && r <= 'Z':
			if i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z' {
				b.WriteByte('-')
			}
			b.WriteRune(r + 'a' - 'A')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// named returns parameters with flags, each with another one.
func named(parameters []operations.Parameter, used map[string]bool) (all []parameter) {
	for _, p := range parameters {
		used[slug(p.Name)] = true
	}
	for _, p := range parameters {
		delete(used, slug(p.Name))
		flag := flagName(p, used)
		used[flag] = true
		all = append(all, parameter{p, flag})
	}
	return all
}

// commonFlags are flags that commands have of their own. An operation's flag with such a name begins with set-.
var commonFlags = []string{
	"output", "columns", "jq", "context", "verbose", "help", "json", "clear", "all", "limit", "dry-run", "if-match", "idempotency-key",
	"csv", "partial", "input", "content-type", "header", "wait", "timeout", "follow",
}

func reserved() map[string]bool {
	used := map[string]bool{}
	for _, name := range commonFlags {
		used[name] = true
	}
	return used
}

func queryFlags(o *operations.Operation) []parameter {
	return prefixed(named(o.Query, map[string]bool{}))
}

func bodyFlags(o *operations.Operation) []parameter {
	used := map[string]bool{}
	for _, f := range queryFlags(o) {
		used[f.flag] = true
	}
	return prefixed(named(operations.All().Bodies[o.Body], used))
}

func prefixed(all []parameter) []parameter {
	used := reserved()
	for i := range all {
		if used[all[i].flag] {
			all[i].flag = "set-" + all[i].flag
		}
	}
	return all
}

// addValues adds a flag for each parameter.
func addValues(flags *pflag.FlagSet, parameters []parameter) []*value {
	values := make([]*value, len(parameters))
	for i, p := range parameters {
		values[i] = &value{parameter: p}
		f := flags.VarPF(values[i], p.flag, "", describe(p.Parameter))
		if p.Kind == "boolean" && !p.List {
			f.NoOptDefVal = "true"
		}
	}
	return values
}

// otherSpelling is about names that a flag does not have.
var otherSpelling = regexp.MustCompile(` ?Also accepted as [^.]*\.?`)

// describe returns the help of a flag.
func describe(p operations.Parameter) string {
	text := strings.TrimSuffix(strings.ReplaceAll(otherSpelling.ReplaceAllString(p.Doc, ""), "`", ""), ".")
	if text == "Only items with this value of "+p.Name {
		text = "Only items with this " + strings.NewReplacer("_id", "", "_", " ").Replace(p.Name)
	}
	if len(p.Enum) > 6 {
		text += ". One of: " + strings.Join(p.Enum, ", ")
	}
	if p.List || p.Kind == "map" {
		text += ". Can be repeated"
	}
	if p.Required {
		text += " (required)"
	}
	return strings.TrimPrefix(text, ". ")
}

// readText returns a text that may stand in a file: @FILE, or @- for standard input. A text that begins with @ is written @@.
func (p *Program) readText(text string) (string, error) {
	name, isFile := strings.CutPrefix(text, "@")
	if !isFile || strings.HasPrefix(name, "@") {
		return name, nil
	}
	content, err := p.readFile(name)
	return string(content), err
}

const maxFileBytes = 64 << 20

// readFile returns a file's content. The name - is standard input.
func (p *Program) readFile(name string) ([]byte, error) {
	from := p.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usage(err)
		}
		defer f.Close()
		from = f
	}
	content, err := io.ReadAll(io.LimitReader(from, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = usage(fmt.Errorf("%s has more than %d MiB", name, maxFileBytes>>20))
	}
	return content, err
}

// readSecret returns the secret of a flag: - asks a person, or reads standard input.
func (p *Program) readSecret(flag, text string) (string, error) {
	if text == "-" && p.Prompt != nil {
		return p.Prompt(flag)
	}
	name := strings.TrimPrefix(text, "@")
	if name == "-" {
		if p.secrets {
			return "", usage(fmt.Errorf("--%s: only one secret can be read from standard input. Use @FILE for the others", flag))
		}
		p.secrets = true
	}
	content, err := p.readFile(name)
	return strings.TrimRight(string(content), "\r\n"), err
}

// get returns the value for JSON, and false if the flag was not set.
func (v *value) get(command *cobra.Command, p *Program) (any, bool, error) {
	if v.Kind == "map" && len(v.texts) > 0 {
		all := map[string]string{}
		for _, text := range v.texts {
			name, inner, _ := strings.Cut(text, "=")
			inner, err := p.readText(inner)
			if err != nil {
				return nil, false, err
			}
			all[name] = inner
		}
		return all, true, nil
	}
	list := make([]any, len(v.texts))
	for i, text := range v.texts {
		var err error
		if list[i], err = v.parse(command, p, text); err != nil {
			return nil, false, fmt.Errorf("--%s: %w", v.flag, err)
		}
	}
	if len(list) == 0 {
		return nil, false, nil
	}
	if v.List && v.Kind != "json" {
		return list, true, nil
	}
	return list[0], true, nil
}

func (v *value) parse(command *cobra.Command, p *Program, text string) (any, error) {
	if v.Secret {
		return p.readSecret(v.flag, text)
	}
	if v.Of != "" {
		return p.resolve(command.Context(), v.Of, text)
	}
	switch v.Kind {
	case "integer", "ref":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, usage(fmt.Errorf("%q is not an id", text))
		}
		return n, nil
	case "number":
		return json.Number(text), nil
	case "boolean":
		return strconv.ParseBool(text)
	case "name":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		return text, nil
	case "time":
		at, err := parseTime(text, time.Now())
		return map[string]string{"iso_8601": at.UTC().Format(time.RFC3339)}, err
	case "json":
		text, err := p.readText(text)
		if err == nil && !json.Valid([]byte(text)) {
			err = usage(fmt.Errorf("%q is not JSON", text))
		}
		return json.RawMessage(text), err
	default:
		return p.readText(text)
	}
}
