package process

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// configure fills a program's configuration from its environment, as one of its commands needs it. It returns all errors. A
// member reads
//
// \tListen string `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" required:"serve" doc:"the address to serve on"`
//
// The commands in the tag required fail if the variable is empty. Other members without a default are optional. A secret may
// be in a file, whose path is in <name>_FILE. The file is read again whenever the secret is used.
func configure(config any, environment []string, command string) (invalid []error) {
	values := map[string]string{}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	for _, m := range membersOf(config) {
		if err := m.fill(values, command); err != nil {
			invalid = append(invalid, err)
		}
	}
	return invalid
}

func (m member) fill(values map[string]string, command string) error {
	text := values[m.name]
	if file := values[m.name+"_FILE"]; text == "" && file != "" && m.isSecret() {
		read := func() (string, error) {
			content, err := os.ReadFile(file)
			return strings.TrimSpace(string(content)), err
		}
		content, err := read()
		if err != nil {
			return fmt.Errorf("%s_FILE: %w", m.name, err)
		}
		if content != "" {
			*m.into.(*secret.String) = secret.New(content, read)
			return nil
		}
	}
	if text == "" {
		text = m.tag.Get("default")
	}
	if text == "" && slices.Contains(strings.Split(m.tag.Get("required"), ","), command) {
		return fmt.Errorf("%s is not set: %s", m.name, m.tag.Get("doc"))
	}
	if err := set(m.into, text); err != nil {
		return fmt.Errorf("%s is %q: %w", m.name, text, err)
	}
	return nil
}

// member is a member of a configuration, or of a struct in it.
type member struct {
	name string // the variable's name
	tag  reflect.StructTag
	into any // a pointer to the member
}

func membersOf(config any) []member { return members(reflect.ValueOf(config).Elem()) }

func members(v reflect.Value) (all []member) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if name, ok := field.Tag.Lookup("env"); ok {
			all = append(all, member{name, field.Tag, v.Field(i).Addr().Interface()})
		} else if field.Type.Kind() == reflect.Struct {
			all = append(all, members(v.Field(i))...)
		}
	}
	return all
}

func (m member) isSecret() bool {
	_, ok := m.into.(*secret.String)
	return ok
}

// set parses text into a member. It never fails for a secret, so no error quotes one.
func set(member any, text string) (err error) {
	switch m := member.(type) {
	case *secret.String:
		*m = secret.New(text)
	case *string:
		*m = text
	case *int:
		if *m, err = strconv.Atoi(text); err != nil {
			return errors.New("it must be a number")
		}
	case *time.Duration:
		if *m, err = time.ParseDuration(text); err != nil || *m < 0 {
			return errors.New("it must be a duration such as 5s")
		}
	case *bool:
		if *m, err = strconv.ParseBool(text); err != nil {
			return errors.New("it must be true or false")
		}
	case *[]netip.Prefix:
		*m, err = parseNetworks(text)
	case encoding.TextUnmarshaler:
		err = m.UnmarshalText([]byte(text))
	default:
		panic(fmt.Sprintf("process: no configuration has members of type %T", member))
	}
	return err
}

func parseNetworks(text string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if a, err := netip.ParseAddr(part); err == nil && a.Zone() == "" {
			networks = append(networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an IP address nor a CIDR prefix", part)
		}
		networks = append(networks, p.Masked())
	}
	return networks, nil
}

// describe lists the variables that configure reads, without those that are only for other services. The tag for names the
// services: for:"system", or for:"pxe system". Without it a variable is for all.
func describe(config any, service string) string {
	var b strings.Builder
	all := membersOf(config)
	for i, m := range all {
		if slices.ContainsFunc(all[:i], func(earlier member) bool { return earlier.name == m.name }) { // several parts read it
			continue
		}
		readers := strings.Fields(m.tag.Get("for"))
		if service != "" && len(readers) > 0 && !slices.Contains(readers, service) {
			continue
		}
		fmt.Fprintf(&b, "  %-27s %s", m.name, m.tag.Get("doc"))
		if value := m.tag.Get("default"); value != "" {
			fmt.Fprintf(&b, " (default: %s)", value)
		}
		if m.isSecret() {
			fmt.Fprintf(&b, "; or the file %s_FILE", m.name)
		}
		b.WriteString("\n")
	}
	return b.String()
}
