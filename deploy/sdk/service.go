package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/deploy/sdk/model"
)

// writeService writes the service of a resource with a method for each operation.
func writeService(b *bytes.Buffer, t *types, r *model.Resource) {
	fmt.Fprintf(b, "// %sService has the operations on %s.\n", r.Singular, r.Path)
	fmt.Fprintf(b, "type %sService struct{ client *Client }\n\n", r.Singular)
	for _, m := range r.Methods {
		w := &methodWriter{b, t, m}
		if w.hasQueryStruct() {
			w.writeQuery()
		}
		if m.Paged {
			w.writeList()
		} else {
			w.writeCall()
		}
		if m.ReadsCSV {
			w.writeImport()
		}
		if m.Several > 0 {
			w.writeMany()
		}
	}
}

// methodWriter writes the methods of one operation.
type methodWriter struct {
	*bytes.Buffer
	types *types
	*model.Method
}

// doc writes a method's comment: what it does, what the key needs, and what else the caller must know.
func (w *methodWriter) doc(name, does string) {
	text := name + " " + does + "."
	if w.Guard != "" && strings.Contains(w.Guard, ".") {
		text += " It needs " + w.Guard + "."
	}
	comment(w.Buffer, "", text)
}

// does returns the operation's summary in the third person: creates an IP entity.
func (w *methodWriter) does() string {
	verb, rest, _ := strings.Cut(w.Summary, " ")
	verb = strings.ToLower(verb[:1]) + verb[1:]
	stem, isY := strings.CutSuffix(verb, "y")
	switch {
	case isY && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		verb = stem + "ies"
	case strings.HasSuffix(verb, "sh"), strings.HasSuffix(verb, "ch"), strings.HasSuffix(verb, "s"), strings.HasSuffix(verb, "x"):
		verb += "es"
	default:
		verb += "s"
	}
	return strings.TrimSpace(verb + " " + strings.TrimSuffix(rest, "."))
}

// hasQueryStruct reports whether the method's parameters are a struct. Others set them by options.
func (w *methodWriter) hasQueryStruct() bool {
	return w.Verb == "GET" && len(w.Query) > 0 && (len(w.Query) > 1 || w.Query[0].Name != "include")
}

func (w *methodWriter) queryType() string { return w.Singular + w.Name }

// writeQuery writes the type of an operation's parameters.
func (w *methodWriter) writeQuery() {
	fmt.Fprintf(w, "// %s selects what %s returns.\ntype %s struct {\n", w.queryType(), w.Name, w.queryType())
	for _, p := range w.Query {
		doc := p.Description
		if doc == "Only items with this value of "+p.Name+"." {
			doc = ""
		}
		goType := w.types.goType(p.Schema)
		if goType == "bool" && p.Name != "count" {
			goType = "Opt[bool]"
		}
		if len(p.Schema.Enum) > 0 && p.Name != "sort" {
			doc = strings.TrimSpace(sentence(doc) + " One of: " + strings.Join(p.Schema.Enum, ", ") + ".")
		}
		if p.Name == "sort" {
			doc = "One of: " + strings.Join(p.Schema.Enum, ", ") + "."
		}
		switch p.Name {
		case "q", "per_page", "page", "cursor", "count":
			doc = commonParameters[p.Name]
		}
		comment(w.Buffer, "\t", doc)
		tag := p.Name
		if p.Required {
			tag += ",required"
		}
		fmt.Fprintf(w, "\t%s %s `query:%q`\n", model.GoName(p.Name), goType, tag)
	}
	w.WriteString("}\n\n")
}

// commonParameters are short descriptions of the parameters that all lists have.
var commonParameters = map[string]string{
	"q":        "Searches names and other text for this part.",
	"per_page": "At most 1000.",
	"page":     "",
	"cursor":   "From the query of Page.Next.",
	"count":    "Whether Page.Total is set.",
}

// parameters returns the parameters of a method, and the values for its route.
func (w *methodWriter) parameters(several bool) (list, ids string) {
	list = "ctx context.Context"
	for i, p := range w.Path {
		goType := w.types.goType(p.Schema)
		name := "id"
		if i < len(w.Path)-1 {
			name = lowerFirst(model.GoName(p.Name))
		} else if goType == "string" && !strings.HasSuffix(p.Name, "id") {
			name = p.Name
		} else if several {
			name, goType = "ids", "[]int64"
		}
		list += fmt.Sprintf(", %s %s", name, goType)
		ids += ", " + name
	}
	return list, ids
}

func lowerFirst(name string) string {
	words := model.Words(name)
	words[0] = strings.ToLower(words[0])
	return strings.Join(words, "")
}

// operation returns the literal that describes the operation.
func (w *methodWriter) operation() string {
	return fmt.Sprintf("operation{%q, %q, %q, %s}", w.ID, w.Verb, w.Route, retryOf(w.Method))
}

// retryOf returns what sending a method's request twice does: once, keyed or same.
func retryOf(m *model.Method) string {
	isPublic := m.Security != nil && len(*m.Security) == 0 // the API keeps an Idempotency-Key only for callers that it knows
	switch {
	case m.Verb == "GET", m.Retry == "" && !m.Raw: // changes nothing
		return "same"
	case m.Key && !isPublic:
		return "keyed"
	case m.Retry == "same":
		return "same"
	default:
		return "once"
	}
}

func (w *methodWriter) writeList() {
	list, ids := w.parameters(false)
	item := w.types.goType(w.Answer.Items)
	list += ", query " + w.queryType() + ", options ...CallOption"
	request := fmt.Sprintf("%s.request(options, query%s)", w.operation(), ids)
	w.doc(w.Name, "returns all items, page by page")
	fmt.Fprintf(w, "func (s *%sService) %s(%s) iter.Seq2[%s, error] {\n", w.Singular, w.Name, list, item)
	fmt.Fprintf(w, "\treturn iterate[%s](ctx, s.client, %s)\n}\n\n", item, request)
	name, csv := "Page", "ExportCSV"
	fmt.Fprintf(w, "// %s returns one page of List.\n", name)
	fmt.Fprintf(w, "func (s *%sService) %s(%s) (*Page[%s], error) {\n", w.Singular, name, list, item)
	fmt.Fprintf(w, "\treturn fetchPage[%s](ctx, s.client, %s)\n}\n\n", item, request)
	fmt.Fprintf(w, "// %s returns what List does as CSV.\n", csv)
	fmt.Fprintf(w, "func (s *%sService) %s(%s) (io.ReadCloser, error) {\n", w.Singular, csv, list)
	fmt.Fprintf(w, "\treturn openCSV(ctx, s.client, %s)\n}\n\n", request)
}

// writeCall writes the method of any operation but a list of pages.
func (w *methodWriter) writeCall() {
	list, ids := w.parameters(false)
	query := "nil"
	if w.hasQueryStruct() {
		list, query = list+", query "+w.queryType(), "query"
	}
	request, body := "", ""
	switch {
	case w.Body != nil:
		list, body = list+", body "+w.types.goType(w.Body), ".withBody(body)"
	case w.RawBody:
		list, body = list+", body io.Reader, contentType string", ".withRaw(body, contentType)"
	}
	request = fmt.Sprintf("%s.request(options, %s%s)%s", w.operation(), query, ids, body)
	w.doc(w.Name, w.does())
	w.writeMethod(w.Name, list, request, body != "", w.Answer, "fetchAll")
}

// writeMethod writes a method that sends a request. Requests with a body may fail before they are sent.
func (w *methodWriter) writeMethod(name, list, request string, canFail bool, answer *model.Schema, fetchMany string) {
	result, call := "error", "send"
	switch {
	case answer != nil && answer.RefName() == "" && len(answer.Type) > 0 && answer.Type[0] == "array":
		item := w.types.goType(answer.Items)
		result, call = "([]"+item+", error)", fetchMany+"["+item+"]"
	case answer != nil:
		item := w.types.goType(answer)
		result, call = "(*"+item+", error)", "fetch["+item+"]"
	case w.Raw:
		result, call = "(*http.Response, error)", "open"
	}
	fmt.Fprintf(w, "func (s *%sService) %s(%s, options ...CallOption) %s {\n", w.Singular, name, list, result)
	err := "nil"
	if canFail {
		fmt.Fprintf(w, "\tr, err := %s\n", request)
		request, err = "r", "err"
	}
	fmt.Fprintf(w, "\treturn %s(ctx, s.client, %s, %s)\n}\n\n", call, request, err)
}

// writeMany writes the method that changes several items: all, or none.
func (w *methodWriter) writeMany() {
	list, ids := w.parameters(true)
	body := ""
	if w.Body != nil {
		list, body = list+", body "+w.types.goType(w.Body), ".withBody(body)"
	}
	answer := w.Answer
	if answer != nil {
		answer = &model.Schema{Type: model.Types{"array"}, Items: answer}
	}
	name := w.Name + "Many"
	fmt.Fprintf(w, "// %s does to up to %d items what %s does to one: to all, or to none.\n", name, w.Several, w.Name)
	w.writeMethod(name, list, fmt.Sprintf("%s.request(options, nil%s)%s", w.operation(), ids, body), body != "", answer, "fetchAll")
}

// writeImport writes the method that sends a body of CSV.
func (w *methodWriter) writeImport() {
	list, ids := w.parameters(false)
	answer := w.Operation.Body.Content["text/csv"].Answer
	fmt.Fprintf(w, "// ImportCSV creates and edits many items. The first line names the members. A row with an id edits that item.\n")
	w.writeMethod("ImportCSV", list+", body io.Reader",
		fmt.Sprintf("%s.request(options, nil%s).withRaw(body, \"text/csv\")", w.operation(), ids), true, answer, "fetchAll")
}
