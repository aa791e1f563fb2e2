package product_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
)

// integers are beyond what a column, a float or PostgreSQL's largest type holds, on both sides.
var integers = []string{
	"2147483648", "-2147483649", // 2^31
	"9007199254740993", "-9007199254740993", // 2^53
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", // 2^63
	"32768", "-1",
}

// TestEveryInteger sends integers beyond each bound to each integer that an operation takes: in its path, its query, its
// body and its cursor. No answer is a 5xx.
func TestEveryInteger(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := newWalk(t, p, c)
	w.createOneOfEach()
	document := openAPI(t, c)
	s := &integerSender{walk: w, tried: map[string]int{}}
	for _, o := range w.operations {
		described := document.Paths.Value(o.Path).GetOperation(o.Method)
		s.path(o)
		s.query(o, described)
		if o.Example != nil && described.RequestBody != nil {
			if media := described.RequestBody.Value.Content["application/json"]; media != nil {
				s.body(o, media.Schema.Value)
			}
		}
	}
	for part, atLeast := range map[string]int{"path": 1500, "query": 1500, "body": 2000, "cursor": 500} {
		if s.tried[part] < atLeast {
			t.Errorf("got %d tries in the %s, want at least %d", s.tried[part], part, atLeast)
		}
	}
}

type integerSender struct {
	*walk
	tried map[string]int // by part of the request
}

// send sends a request, and expects no failure of the server.
func (s *integerSender) send(part, method, path string, body any, headers ...string) {
	s.t.Helper()
	s.tried[part]++
	if answer := s.c.Do(method, path, body, headers...); answer.Status >= 500 {
		sent, _ := json.Marshal(body)
		s.t.Errorf("%s %s with %s: got %d %s, want no 5xx", method, path, sent, answer.Status, answer.Text)
	}
}

// path puts each integer into each parameter of a path, one at a time.
func (s *integerSender) path(o rest.Operation) {
	s.t.Helper()
	for _, at := range parameter.FindAllStringIndex(o.Path, -1) {
		for _, n := range integers {
			s.send("path", o.Method, s.item(o.Path[:at[0]])+n+s.item(o.Path[at[1]:]), o.Example, contentType(o)...)
		}
		if o.Several {
			s.send("path", o.Method, s.item(o.Path[:at[0]])+strings.Join(integers, ","), o.Example, contentType(o)...)
		}
	}
}

// query puts each integer into each parameter of the query, and into the cursor of each sort.
func (s *integerSender) query(o rest.Operation, described *openapi3.Operation) {
	s.t.Helper()
	if o.Method != http.MethodGet {
		return
	}
	for _, parameter := range described.Parameters {
		if parameter.Value.In != "query" {
			continue
		}
		for _, n := range integers {
			s.send("query", o.Method, s.item(o.Path)+"?"+parameter.Value.Name+"="+n, nil)
		}
		if parameter.Value.Name == "sort" {
			for _, sort := range parameter.Value.Schema.Value.Enum {
				s.cursors(o, fmt.Sprint(sort))
			}
		}
	}
}

// cursors sends cursors, which callers can read and write, of a list in one order.
func (s *integerSender) cursors(o rest.Operation, sort string) {
	s.t.Helper()
	query := url.Values{"sort": {sort}}
	sum := sha256.Sum256([]byte(query.Encode()))
	for _, n := range integers {
		for _, position := range []string{`"v": ` + n + `, "i": 1`, `"v": ` + n + `, "i": ` + n, `"v": "` + n + `", "i": ` + n, `"i": ` + n + `, "b": true`} {
			text := fmt.Sprintf(`{"q": %q, %s}`, base64.RawURLEncoding.EncodeToString(sum[:9]), position)
			s.send(
				"cursor",
				o.Method,
				s.item(o.Path)+"?sort="+url.QueryEscape(sort)+"&cursor="+base64.RawURLEncoding.EncodeToString([]byte(text)),
				nil,
			)
		}
	}
}

// body puts each integer into each member of the example that is a number or a reference. Others get three of them.
func (s *integerSender) body(o rest.Operation, object *openapi3.Schema, path ...string) {
	s.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		member := object.Properties[name].Value
		at := append(slices.Clone(path), name)
		isNumber, isList := strings.Contains(name, "id"), false
		for _, one := range append([]*openapi3.SchemaRef{{Value: member}}, append(member.AnyOf, member.OneOf...)...) {
			isNumber = isNumber || one.Value.Type.Includes("integer") || one.Value.Type.Includes("object")
			isList = isList || one.Value.Type.Includes("array")
			if len(one.Value.Properties) > 0 {
				s.body(o, one.Value, at...)
			}
		}
		few := integers
		if !isNumber && !isList {
			few = []string{integers[0], integers[4], integers[5]}
		}
		for _, n := range few {
			s.sendBody(o, at, json.RawMessage(n))
			if isList {
				s.sendBody(o, at, []json.RawMessage{json.RawMessage(n)})
			}
		}
	}
}

// sendBody sends an operation's example with another value of one member.
func (s *integerSender) sendBody(o rest.Operation, at []string, value any) {
	s.t.Helper()
	s.send("body", o.Method, s.item(o.Path), withMember(s.t, o.Example, at, value))
}
