package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func printed(t *testing.T, o Options, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := o.Item(&b, json.RawMessage(text)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestItem prints texts that a format has to treat with care.
func TestItem(t *testing.T) {
	t.Parallel()
	const item = `{"id":9007199254740993,"name":"true","owner":{"id":1,"name":"Ben"},"at":{"iso_8601":"2026-11-20T10:00:00Z","unix":1},"note":"a\u001b[2Jb\nc","macs":["a","b"]}`
	for format, want := range map[string]string{
		"table": "id     9007199254740993\nname   true\nowner  Ben (1)\nat     2026-11-20T10:00:00Z\nnote   a�[2Jb ⏎ c\nmacs   a, b\n",
		"csv":   "id,name,owner,at,note,macs\n9007199254740993,true,Ben,2026-11-20T10:00:00Z,\"a\x1b[2Jb\nc\",\"a, b\"\n",
	} {
		if got := printed(t, Options{Format: format}, item); got != want {
			t.Errorf("%s: got\n%q\nwant\n%q", format, got, want)
		}
	}
	yaml := printed(t, Options{Format: "yaml"}, item)
	for _, want := range []string{"id: 9007199254740993\nname: \"true\"\nowner:\n  id: 1\n", "macs:\n  - a\n  - b\n"} {
		if !strings.Contains(yaml, want) {
			t.Errorf("got %q, want it to have %q", yaml, want)
		}
	}
	if got := printed(t, Options{Query: ".id, .owner"}, item); got != "9007199254740993\n{\"id\":1,\"name\":\"Ben\"}\n" {
		t.Errorf("got %q, want the whole number", got)
	}
	chosen := Options{Format: "json", Columns: []string{"owner.name", "colour"}}
	if got := printed(t, chosen, item); got != "{\n  \"owner.name\": \"Ben\",\n  \"colour\": null\n}\n" {
		t.Errorf("got %q, want the chosen members", got)
	}
}

// TestNestedLists prints a list of objects in an item as a table of its own.
func TestNestedLists(t *testing.T) {
	t.Parallel()
	got := printed(t, Options{Format: "table"}, `{"id":1,"requests":[{"at":"now","what":"boot"},{"at":"then","what":"lease"}]}`)
	if want := "id  1\n\nrequests\nAT    WHAT\nnow   boot\nthen  lease\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
