package rest

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/shape"
)

// MaxBody is how many bytes a JSON body may have.
const MaxBody = 1 << 20

// requestPlan says how a request struct is filled: members with a tag `path:"entity_id"` from the path, those with
// `query:"q"` from the query, a Body from the body. The tag `path:"*"` stands for the path's last parameter, and
// `path:"parent"` for the one that names the parent of a nested collection, or nothing where there is none.
type requestPlan struct {
	path  []parameter
	query []parameter
	match []int // index of the IfMatch, nil where the request has none
	body  []int // index of the Body, nil where the request has none
}

// parameter is a member of a request struct that a parameter fills.
type parameter struct {
	*shape.Member
	name string
}

func planRequest(t reflect.Type, path string, parameters []string) *requestPlan {
	p := &requestPlan{}
	for _, m := range shape.Of(t).Members {
		switch name := m.Path; {
		case m.Query != "":
			p.query = append(p.query, parameter{m, m.Query})
		case name == "*":
			p.path = append(p.path, parameter{m, parameters[len(parameters)-1]})
		case name == "parent":
			if parent := parentParameter(path, parameters); parent != "" {
				p.path = append(p.path, parameter{m, parent})
			}
		case name != "":
			p.path = append(p.path, parameter{m, name})
		}
	}
	for _, field := range shape.Of(t).Untagged {
		if field.Type == reflect.TypeFor[IfMatch]() {
			p.match = field.Index
		} else if _, ok := reflect.New(field.Type).Interface().(bodyDecoder); ok {
			p.body = field.Index
		} else if field.IsExported() {
			panic(fmt.Sprintf("rest: nothing fills %s.%s", t, field.Name))
		}
	}
	return p
}

// parentParameter is the name of the parameter that stands for the parent of a collection, or of an item in one.
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
func (p *requestPlan) fill(v reflect.Value, r *http.Request) error {
	vars := mux.Vars(r)
	for _, param := range p.path {
		if to := v.FieldByIndex(param.Index); param.Type == reflect.TypeFor[itemIDs]() {
			ids, err := parseItemIDs(vars[param.name])
			if err != nil {
				return err
			}
			to.Set(reflect.ValueOf(ids))
		} else if !setParameter(to, vars[param.name]) {
			return errNoItem()
		}
	}
	if err := p.fillQuery(v, r); err != nil {
		return err
	}
	if p.match != nil {
		v.FieldByIndex(p.match).Set(reflect.ValueOf(ifMatchOf(r)))
	}
	if p.body == nil {
		return nil
	}
	if media := mediaType(r); media != "" && media != "application/json" {
		return problem.New(problem.UnsupportedMedia, "The body must be application/json.")
	}
	text, err := readBody(r)
	if err != nil {
		return err
	}
	sent, err := parseObject(text)
	if err != nil {
		return err
	}
	v.FieldByIndex(p.body).Addr().Interface().(bodyDecoder).decode(sent)
	return nil
}

func (p *requestPlan) fillQuery(v reflect.Value, r *http.Request) error {
	if len(p.query) == 0 {
		return nil
	}
	var wrong problem.Fields
	query := r.URL.Query()
	for _, param := range p.query {
		switch {
		case !query.Has(param.name):
			if param.Required != 0 {
				wrong.Add("?"+param.name, "required", "is required")
			}
		case !setParameter(v.FieldByIndex(param.Index), query.Get(param.name)):
			wrong.Add("?"+param.name, "type", "%s", mustBe(param.Type))
		}
	}
	if len(wrong) > 0 {
		return wrongQuery(wrong)
	}
	return nil
}

func setParameter(to reflect.Value, text string) bool {
	if to.Type() == reflect.TypeFor[Timestamp]() {
		at, ok := moment(text)
		to.Set(reflect.ValueOf(Timestamp{at}))
		return ok
	}
	switch to.Kind() {
	case reflect.String:
		to.SetString(text)
		return isText(text)
	case reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		to.SetInt(n)
		return err == nil && strconv.FormatInt(n, 10) == text
	default:
		panic("rest: no parameter can have the type " + to.Type().String())
	}
}

// mustBe is what is said of a parameter that is not of its type.
func mustBe(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Timestamp]():
		return momentText
	case t.Kind() == reflect.Int64:
		return "must be an integer"
	default:
		return "must be a text in UTF-8 without NUL"
	}
}

// isText tells whether the database can have a text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func errNoItem() error { return problem.New(problem.NotFound, "There is no such item.") }

// checkCharset fails where a body says that it is in something else than UTF-8.
func checkCharset(r *http.Request) error {
	_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch charset := strings.ToLower(parameters["charset"]); charset {
	case "", "utf-8", "utf8":
		return nil
	default:
		return problem.New(problem.UnsupportedMedia, "The body must be in UTF-8, not in %.50s.", charset)
	}
}

// mediaType is the type of a request's body, without its parameters.
func mediaType(r *http.Request) string {
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err == nil {
		return media
	}
	return kind
}

// readBody reads a body within its bounds of size and time.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > MaxBody {
		return nil, errTooLarge()
	}
	s := serving(r.Context())
	_ = s.connection.SetReadDeadline(time.Now().Add(progress)) // where there is a connection
	defer func() { _ = s.connection.SetReadDeadline(time.Time{}) }()
	var text bytes.Buffer
	if _, err := io.Copy(&text, io.LimitReader(r.Body, MaxBody+1)); err != nil {
		return nil, problem.New(problem.BadRequest, "The body could not be read to its end.").Because(err)
	}
	if text.Len() > MaxBody {
		return nil, errTooLarge()
	}
	s.body = text.Bytes()
	return s.body, nil
}

func errTooLarge() error {
	return problem.New(problem.TooLarge, "The body is larger than %d bytes.", MaxBody)
}

// progress is how long a caller may take to send a body, and then between two reads of a long answer.
const progress = 30 * time.Second
