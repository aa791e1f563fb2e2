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

	"github.com/ironplane/ironplane/pkg/secret"
)

// configure fills a program's configuration from its environment, as one of its commands needs it. A member reads
//
//	Listen string `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" required:"serve" doc:"the address to serve on"`
//
// A member without a default is off where it is empty, or required by the commands that it names. A secret may stand
// in a file, which <name>_FILE names.
func configure(config any, environment []string, command string) error {
	given := map[string]string{}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		given[name] = value
	}
	v := reflect.ValueOf(config).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		name, ok := field.Tag.Lookup("env")
		if !ok {
			continue
		}
		text := given[name]
		into := v.FieldByIndex(field.Index).Addr().Interface()
		if file := given[name+"_FILE"]; text == "" && file != "" && isSecret(into) {
			content, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("%s_FILE: %w", name, err)
			}
			text = strings.TrimSpace(string(content))
		}
		if text == "" {
			text = field.Tag.Get("default")
		}
		if text == "" && slices.Contains(strings.Split(field.Tag.Get("required"), ","), command) {
			return fmt.Errorf("%s is not set: %s", name, field.Tag.Get("doc"))
		}
		if err := set(into, text); err != nil {
			return fmt.Errorf("%s is %q: %w", name, text, err)
		}
	}
	return nil
}

func isSecret(member any) bool {
	_, ok := member.(*secret.String)
	return ok
}

// set fails for no secret, so that none is shown.
func set(member any, text string) (err error) {
	switch m := member.(type) {
	case *secret.String:
		*m = secret.New(text)
	case *string:
		*m = text
	case *int:
		if *m, err = strconv.Atoi(text); err != nil {
			return errors.New("it is no number")
		}
	case *bool:
		if *m, err = strconv.ParseBool(text); err != nil {
			return errors.New("it can be true or false")
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
			return nil, fmt.Errorf("%q is neither an address nor a CIDR", part)
		}
		networks = append(networks, p.Masked())
	}
	return networks, nil
}

// describe lists the variables that configure reads.
func describe(config any) string {
	var b strings.Builder
	for _, field := range reflect.VisibleFields(reflect.TypeOf(config).Elem()) {
		name, ok := field.Tag.Lookup("env")
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "  %-27s %s", name, field.Tag.Get("doc"))
		if value := field.Tag.Get("default"); value != "" {
			fmt.Fprintf(&b, " (default: %s)", value)
		}
		if field.Type == reflect.TypeFor[secret.String]() {
			fmt.Fprintf(&b, "; or in the file that %s_FILE names", name)
		}
		b.WriteString("\n")
	}
	return b.String()
}
