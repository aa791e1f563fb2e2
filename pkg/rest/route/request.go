package route

import (
	"bytes"
	"cmp"
	"encoding"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/schema"
)

// maxBody is the maximum size of a JSON body in bytes.
const maxBody = 1 << 20

// Request says how a request struct is filled. Members with the tag `path:"entity_id"` come from the path, members with
// `query:"q"` from the query, and a Body from the body. The tag `path:"*"` is the last parameter of the path. The tag
// `path:"parent"` is the parent of a nested collection; it stays empty without one.
type Request struct {
	Path     []Parameter
	Query    []Parameter
	Names    []string                            // all known parameters of the query, sorted
	ReadBody func(*http.Request) ([]byte, error) // returns the body as JSON; nil: the body is JSON
	DryRun   bool                                // accepts the parameter dry_run; see AcceptDryRun
	Known    *body.Known                         // the members that the body may have; nil: any
	match    []int                               // index of the IfMatch; nil if there is none
	body     []int                               // index of the Body; nil if there is none
}

// AcceptDryRun makes the request accept the parameter dry_run. Change then rolls back.
func (p *Request) AcceptDryRun() {
	p.DryRun, p.Names = true, append(p.Names, DryRun)
	slices.Sort(p.Names)
}

// HasIfMatch reports whether the operation accepts the header If-Match.
func (p *Request) HasIfMatch() bool { return p.match != nil }

// Parameter is a parameter that fills a member of a request struct.
type Parameter struct {
	*schema.Member
	Name string
}

func planRequest(t reflect.Type, path string, parameters []string) *Request {
	p := &Request{}
	for _, m := range schema.Describe(t).Members {
		switch name := m.Path; {
		case m.Query != "":
			p.Query, p.Names = append(p.Query, Parameter{m, m.Query}), append(p.Names, m.Query)
		case name == "*":
			p.Path = append(p.Path, Parameter{m, parameters[len(parameters)-1]})
		case name == "parent":
			if parent := parentParameter(path, parameters); parent != "" {
				p.Path = append(p.Path, Parameter{m, parent})
			}
		case name != "":
			p.Path = append(p.Path, Parameter{m, name})
		}
	}
	for _, field := range schema.Describe(t).Untagged {
		if field.Type == reflect.TypeFor[IfMatch]() {
			p.match = field.Index
		} else if _, ok := reflect.New(field.Type).Interface().(body.Any); ok {
			p.body = field.Index
		} else if field.IsExported() {
			panic(fmt.Sprintf("nothing fills %s.%s", t, field.Name))
		}
	}
	slices.Sort(p.Names)
	return p
}

// parentParameter returns the parameter with the parent of a collection or of an item in it.
func parentParameter(path string, parameters []string) string {
	n := len(parameters) - 1
	if strings.HasSuffix(path, "}") {
		n--
	}
	if n < 0 {
		return ""
	}
	return parameters[n]
}

// fill reads the request into v, an addressable struct.
func (p *Request) fill(v reflect.Value, r *http.Request) error {
	if err := p.FillPath(v, r); err != nil {
		return err
	}
	_, invalid, err := p.FillQuery(v, r)
	if err != nil {
		return err
	}
	if len(invalid) > 0 {
		return InvalidQuery(invalid)
	}
	if p.match != nil {
		v.FieldByIndex(p.match).Set(reflect.ValueOf(ifMatchOf(r)))
	}
	if p.body == nil {
		return nil
	}
	read := p.readLong
	if p.ReadBody == nil {
		if media := MediaType(r); media != "" && media != problem.MediaJSON {
			return problem.New(problem.UnsupportedMedia, "The body must be application/json.")
		}
		read = ReadBody
	}
	text, err := read(r)
	if err != nil {
		return err
	}
	return v.FieldByIndex(p.body).Addr().Interface().(body.Any).Decode(text, p.Known)
}

// FillPath reads the parameters of the path into v, an addressable struct.
func (p *Request) FillPath(v reflect.Value, r *http.Request) error {
	vars := mux.Vars(r)
	for _, param := range p.Path {
		to := v.FieldByIndex(param.Index)
		if own, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
			if err := own.UnmarshalText([]byte(vars[param.Name])); err != nil {
				return err
			}
			continue
		}
		switch {
		case to.Kind() == reflect.String:
			if to.SetString(vars[param.Name]); !body.IsText(vars[param.Name]) {
				return NoSuchItem()
			}
		default:
			id, ok := ParseID(vars[param.Name])
			if to.SetInt(id); !ok {
				return NoSuchItem()
			}
		}
	}
	return nil
}

// ParseID parses an id in a path. Only the canonical spelling is an id.
func ParseID(text string) (id int64, ok bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && strconv.FormatInt(id, 10) == text
}

// FillQuery reads the request's own query parameters into v, and returns all parameters.
func (p *Request) FillQuery(v reflect.Value, r *http.Request) (asked url.Values, invalid problem.Fields, err error) {
	asked, invalid, err = p.readQuery(r)
	for _, param := range p.Query {
		if value := asked.Get(param.Name); value != "" {
			if code, message := body.ReadValue(v.FieldByIndex(param.Index), value, param.Member); code != "" {
				invalid.Add("?"+param.Name, code, "%s", message)
			}
		} else if !asked.Has(param.Name) && param.Required != 0 {
			invalid.Add("?"+param.Name, "required", "is required")
		} else if asked.Has(param.Name) && param.Name == owner {
			invalid.Add("?"+param.Name, "required", "cannot be empty")
		}
	}
	if value := asked.Get(DryRun); p.DryRun && asked.Has(DryRun) && value == "" {
		invalid.Add("?"+DryRun, "required", "cannot be empty")
	} else if p.DryRun && value != "" {
		dry := reflect.ValueOf(&exchangeFrom(r.Context()).dryRun).Elem()
		if code, message := body.ReadValue(dry, value, &schema.Member{}); code != "" {
			invalid.Add("?"+DryRun, code, "%s", message)
		}
	}
	return asked, invalid, err
}

const (
	// Include is the parameter that may be repeated.
	Include = "include"
	// DryRun is the parameter of changes that are rolled back. It must not be empty, because a mistake must not change anything.
	DryRun = "dry_run"
	// owner names an account. It must not be empty, because a mistake must not select the caller.
	owner = "owner"
	// maxInvalidParameters is the maximum number of errors that are reported for a query.
	maxInvalidParameters = 100
)

var underscores = strings.NewReplacer(".", "_", "[", "_", "]", "")

// readQuery returns the parameters by the names that the operation knows. Dots and brackets stand for an underscore: owner.id,
// owner[id]. Unknown parameters are errors, because a misspelt filter would return everything.
func (p *Request) readQuery(r *http.Request) (asked url.Values, invalid problem.Fields, err error) {
	sent, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, nil, problem.New(problem.BadRequest, "The query is not of the form name=value&name=value.").Because(err)
	}
	asked = url.Values{}
	for _, spelt := range slices.Sorted(maps.Keys(sent)) {
		name := strings.TrimRight(underscores.Replace(spelt), "_")
		switch {
		case len(invalid) == maxInvalidParameters:
			return asked, invalid, nil
		case !slices.Contains(p.Names, name):
			invalid.Add("?"+spelt, "unknown", "is unknown; there is %s", cmp.Or(strings.Join(p.Names, ", "), "none"))
		case name == Include:
			values := slices.DeleteFunc(append(asked[name], sent[spelt]...), func(one string) bool { return one == "" })
			asked.Set(name, strings.Join(values, ","))
		case asked.Has(name) || len(sent[spelt]) > 1:
			invalid.Add("?"+name, "disagrees", "must not be repeated")
		case name == "q": // keeps trailing spaces
			asked.Set(name, sent[spelt][0])
		default:
			asked.Set(name, strings.TrimRightFunc(sent[spelt][0], unicode.IsSpace))
		}
	}
	return asked, invalid, nil
}

// InvalidQuery returns the error for a query with invalid parameters.
func InvalidQuery(invalid problem.Fields) error {
	f := problem.New(problem.BadRequest, "The query is invalid: %s %s.", strings.TrimPrefix(invalid[0].Pointer, "?"), invalid[0].Message)
	f.Fields = invalid
	return f
}

// NoSuchItem returns the error for a path without an item.
func NoSuchItem() error { return problem.New(problem.NotFound, "There is no such item.") }

// checkCharset returns an error if the body claims another encoding than UTF-8.
func checkCharset(r *http.Request) error {
	_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch charset := strings.ToLower(parameters["charset"]); charset {
	case "", "utf-8", "utf8":
		return nil
	default:
		return problem.New(problem.UnsupportedMedia, "The body must be in UTF-8, not in %.50s.", charset)
	}
}

// MediaType returns the type of a request's body without its parameters.
func MediaType(r *http.Request) string {
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err == nil {
		return media
	}
	return kind
}

// readLong reads a body that may take any time as long as it makes progress. The Content-Type becomes JSON, so that the same
// content is the same request.
func (p *Request) readLong(r *http.Request) (text []byte, err error) {
	s := exchangeFrom(r.Context())
	r.Body = &rawBody{ReadCloser: r.Body, exchange: s, answer: &rawWriter{}}
	s.body, err = p.ReadBody(r)
	r.Header.Set("Content-Type", problem.MediaJSON)
	return s.body, err
}

// ReadBody reads a body within its limits of size and time.
func ReadBody(r *http.Request) ([]byte, error) { return readUpTo(r, maxBody) }

func readUpTo(r *http.Request, maxSize int64) ([]byte, error) {
	if r.ContentLength > maxSize {
		return nil, errTooLarge(maxSize)
	}
	s := exchangeFrom(r.Context())
	_ = s.connection.SetReadDeadline(time.Now().Add(progressTimeout)) // unsupported by test recorders
	defer func() { _ = s.connection.SetReadDeadline(time.Time{}) }()
	var text bytes.Buffer
	if _, err := io.Copy(&text, io.LimitReader(r.Body, maxSize+1)); err != nil {
		return nil, problem.New(problem.BadRequest, "The body ended early or arrived too slowly. Send it again.").Because(err)
	}
	if int64(text.Len()) > maxSize {
		return nil, errTooLarge(maxSize)
	}
	s.body = text.Bytes()
	return s.body, nil
}

func errTooLarge(maxSize int64) error {
	return problem.New(problem.TooLarge, "The body is larger than %d bytes.", maxSize)
}

// progressTimeout limits the time to send a body, and the time between two reads of a long response.
const progressTimeout = 30 * time.Second
