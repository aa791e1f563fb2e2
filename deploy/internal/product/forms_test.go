package product_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// TestEveryForm creates and edits an item of each resource with the examples as JSON, and in another installation as forms
// and PHP would send them. The results must be the same.
func TestEveryForm(t *testing.T) {
	t.Parallel()
	asJSON, asForm := everyItem(t, func(o rest.Operation) any { return o.Example }), everyItem(t, formOf)
	if len(asJSON) < 15 {
		t.Errorf("got %d operations tried, want at least 15", len(asJSON))
	}
	for operation, want := range asJSON {
		if got := asForm[operation]; got != want {
			t.Errorf("%s: got %s from a form, want %s as from JSON", operation, got, want)
		}
	}
}

// everyItem returns the result of each operation that creates or edits an item.
func everyItem(t *testing.T, body func(rest.Operation) any) map[string]string {
	t.Helper()
	p, c := producttest.Start(t)
	w := newWalk(t, p, c)
	for i := range w.operations {
		if o := &w.operations[i]; creates(*o) {
			o.Example, _ = json.Marshal(body(*o))
		}
	}
	w.createOneOfEach()
	items := map[string]string{}
	for _, o := range w.operations {
		switch {
		case creates(o):
			items["POST "+o.Path] = w.describe(o)
		case edits(o):
			w.c.Do(o.Method, w.item(o.Path), body(o)).Want(200)
			items["PATCH "+o.Path] = w.describe(o)
		}
	}
	return items
}

// describe returns an item with its version, and without its timestamps.
func (w *walk) describe(o rest.Operation) string {
	w.t.Helper()
	producttest.AwaitConsumers(w.t, w.p)
	response := w.c.Do("GET", w.item(o.Effect.ViewPath), nil).Want(200)
	item := single(response)
	delete(item, "created_at")
	delete(item, "claimed_at")
	if !bytes.Contains(o.Example, []byte("expires_at")) { // otherwise it depends on the time of creation
		delete(item, "expires_at")
	}
	if child, ok := item["child"].(map[string]any); ok {
		delete(child, "created_at")
	}
	return testkit.JSON(item) + response.Header.Get("ETag")
}

// single returns the item of a response, or the only item of an array.
func single(response *testkit.Response) map[string]any {
	one := *response
	one.Text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(response.Text), "["), "]")
	return testkit.Decode[map[string]any](&one)
}

// formOf returns an operation's example as a form would send it.
func formOf(o rest.Operation) any {
	var value map[string]any
	d := json.NewDecoder(strings.NewReader(string(o.Example)))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		panic(err) // a service parses its examples when it starts
	}
	form := asForm(value, "", o.Secrets).(map[string]any)
	form["isWrapped"] = true
	return form
}

func asForm(value any, name string, secrets []string) any {
	switch value := value.(type) {
	case map[string]any:
		if timestamp, ok := value["iso_8601"]; ok {
			return timestamp
		}
		form := map[string]any{}
		for inner, v := range value {
			form[inner] = asForm(v, strings.TrimPrefix(name+"."+inner, "."), secrets)
		}
		return form
	case []any:
		form := []any{""} // forms send an empty hidden input before a selection
		for _, v := range value {
			form = append(form, asForm(v, name, secrets))
		}
		return form
	case json.Number:
		return value.String()
	case bool:
		return map[bool]string{true: "1", false: "False"}[value]
	case nil:
		return ""
	case string:
		if value != "" && strings.Trim(value, "0123456789") == "" {
			return json.Number(value)
		}
		if slices.Contains(secrets, name) || strings.Contains(value, "{{") { // stored as it is sent
			return value
		}
		return value + " \t"
	default:
		panic(fmt.Sprintf("%T", value))
	}
}

// TestEveryUnchangedEdit reads each item and sends it back. This changes neither its version nor the log.
func TestEveryUnchangedEdit(t *testing.T) { producttest.InOneProcess(t, testEveryUnchangedEdit) }

func testEveryUnchangedEdit(t *testing.T, p *product.Product, c *testkit.Client) {
	w := newWalk(t, p, c)
	w.createOneOfEach()
	tried := 0
	for _, o := range w.operations {
		if !edits(o) {
			continue
		}
		tried++
		path := w.item(o.Path)
		producttest.AwaitConsumers(t, p)
		read := c.Do("GET", path, nil).Want(200)
		shown, tag := testkit.JSON(single(read)), read.Header.Get("ETag")
		for _, body := range []any{shown, formOf(rest.Operation{Example: json.RawMessage(shown)})} {
			back := c.Do("PATCH", path, body, "X-Request-Id", fmt.Sprint("same-", tried)).Want(200)
			if testkit.JSON(single(back)) != shown || tag != "" && back.Header.Get("ETag") != tag {
				t.Errorf("PATCH %s with what it shows: got %s, want %s with the same ETag", path, back.Text, read.Text)
			}
		}
		changed := c.Do("PATCH", path, o.Example).Want(200)
		if changed.Header.Get("ETag") == read.Header.Get("ETag") {
			t.Errorf("PATCH %s with %s: got the same ETag, want a new one", path, o.Example)
		}
	}
	if tried < 8 {
		t.Errorf("got %d operations tried, want at least 8", tried)
	}
	producttest.AwaitLog(t, p)
	var logged int
	if err := p.Databases[system.Name].QueryRow(t.Context(), "SELECT count(*) FROM log WHERE request_id LIKE 'same-%'").
		Scan(&logged); err != nil {
		t.Fatal(err)
	}
	if logged > 0 {
		t.Errorf("got %d log items of edits that changed nothing, want none", logged)
	}
}
