package product_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// severalLines are the members that may have several lines, by their name and a part of their operation's path. All others are
// one line.
var severalLines = map[string][]string{
	"body": {"/email/template", "/pxe/", "/integration"}, "html": {"/email/template"}, "yaml": {"/pxe/profile/import"}, "text": {"/setting"},
	"description": {"/pxe/", "/auth/verify/method"}, "ssh_keys": {"/pxe/"}, "public_key": {"/pxe/file"}, "driver": {"/pxe/driver"},
	"custom_admin_html": {"/system/theme"}, "custom_client_html": {"/system/theme"}, "custom_css": {"/system/theme"},
	"note": {"/entity"}, "desc": {"/field"}, "default": {"/field"}, "value": {"/field/{field_id}/value", "/setting"},
}

// TestEveryText sends texts that do not fit one line to each member that is a text. To each member that is an email address it
// sends others that are none. All are refused at the member.
func TestEveryText(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	document := openAPI(t, w.c)
	s := &textSender{walk: w, skipped: map[string]bool{}}
	for _, o := range w.operations {
		described := document.Paths.Value(o.Path).GetOperation(o.Method)
		if o.Example == nil || described.RequestBody == nil {
			continue
		}
		if media := described.RequestBody.Value.Content["application/json"]; media != nil {
			s.object(o, media.Schema.Value)
		}
	}
	if s.tried < 250 || s.addresses < 20 {
		t.Errorf("got %d texts and %d addresses tried, want at least 250 and 20", s.tried, s.addresses)
	}
	for name := range severalLines {
		if !s.skipped[name] {
			t.Errorf("got no member %s, want one that may have several lines", name)
		}
	}
}

type textSender struct {
	*walk
	tried, addresses int
	skipped          map[string]bool
}

func (s *textSender) object(o rest.Operation, object *openapi3.Schema, path ...string) {
	s.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		member := object.Properties[name].Value
		for _, either := range member.AnyOf {
			if !either.Value.Type.Is("null") {
				member = either.Value
			}
		}
		at := append(slices.Clone(path), name)
		if len(member.Properties) > 0 {
			s.object(o, member, at...)
		}
		if !member.Type.Includes("string") || member.WriteOnly {
			continue
		}
		if slices.ContainsFunc(severalLines[name], func(path string) bool { return strings.Contains(o.Path, path) }) {
			s.skipped[name] = true
			continue
		}
		for _, text := range []string{"x\ny", "x\ty", "x\u0085y", "x\u2028y", "x\u202ey", "x\u2066y"} {
			s.refused(o, at, text)
			s.tried++
		}
		if member.Format == "email" {
			for _, address := range []string{"a@[127.0.0.1]", "%00@x", "root@localhost", "Anna <anna@example.com>", "a@example.com\u202e"} {
				s.refused(o, at, address)
				s.addresses++
			}
		}
	}
}

// refused sends an operation's example with another value of one member, and expects an error of the member.
func (s *textSender) refused(o rest.Operation, at []string, text string) {
	s.t.Helper()
	answer := s.c.Do(o.Method, s.item(o.Path), withMember(s.t, o.Example, at, text))
	pointer := "/" + strings.Join(at, "/")
	isMember := func(e problem.Field) bool { return strings.HasPrefix(pointer, e.Pointer) } // or of what holds it
	if answer.Status != 422 || !slices.ContainsFunc(testkit.Decode[problem.Problem](answer).Errors, isMember) {
		s.t.Errorf("%s %s with %q in %s: got %d %s, want a 422 of the member", o.Method, o.Path, text, pointer, answer.Status, answer.Text)
	}
}

// withMember returns an example with another value of one member.
func withMember(t testing.TB, example json.RawMessage, at []string, value any) map[string]any {
	t.Helper()
	var body map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(example)))
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil {
		t.Fatal(err)
	}
	object := body
	for _, name := range at[:len(at)-1] {
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
		}
		object[name], object = inner, inner
	}
	object[at[len(at)-1]] = value
	return body
}
