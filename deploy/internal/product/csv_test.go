package product_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestEveryCSV creates random items of each resource that has CSV, reads the list, and sends it back: nothing changes. It edits
// the items, and sends the list back: they are as before. It deletes the items, and sends the list back without ids: the new list
// is the same, except for ids and secrets.
func TestEveryCSV(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := newWalk(t, p, c)
	w.createOneOfEach()
	document := openAPI(t, c)
	tried := 0
	for _, o := range w.operations {
		item := document.Paths.Value(o.Path)
		if !creates(o) || item.Post.RequestBody.Value.Content["text/csv"] == nil || item.Get == nil ||
			item.Get.Responses.Status(200).Value.Content["text/csv"] == nil {
			continue
		}
		tried++
		t.Run(o.Path, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("drawn from %d", seed)
			sheet := &sheet{
				walk: &walk{t: t, c: c.WithT(t), ids: w.ids},
				path: w.item(o.Path),
				all:  w.item(o.Path) + emptyQuery(item.Get),
				r:    rand.New(rand.NewPCG(seed, 0)),
			}
			one := document.Paths.Value(o.Effect.ViewPath)
			sheet.edit = one.Patch.RequestBody.Value.Content["application/json"].Schema.Value
			sheet.body = item.Post.RequestBody.Value.Content["application/json"].Schema.Value
			if err := json.Unmarshal(o.Example, &sheet.example); err != nil {
				t.Fatal(err)
			}
			kept := ids(sheet.c.Do("GET", sheet.all, nil).Want(200)) // other items refer to them
			for range 4 {
				sheet.roundTrip(kept, o.Secrets)
			}
		})
	}
	if tried < 15 {
		t.Errorf("got %d resources tried, want at least 15", tried)
	}
}

// openAPI returns the installation's API document.
func openAPI(t *testing.T, c *testkit.Client) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData([]byte(c.Do("GET", "/-/openapi.json", nil).Want(200).Text))
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// emptyQuery returns a query with the parameters that a list requires, empty, so that they filter nothing.
func emptyQuery(list *openapi3.Operation) (query string) {
	for _, p := range list.Parameters {
		if p.Value.In == openapi3.ParameterInQuery && p.Value.Required {
			query += "&" + p.Value.Name + "="
		}
	}
	return strings.Replace(query, "&", "?", 1)
}

type sheet struct {
	*walk
	path    string
	all     string // the path of the complete list
	body    *openapi3.Schema
	edit    *openapi3.Schema
	example map[string]any
	r       *rand.Rand
	n       int // the number of created items
}

// roundTrip creates random items, exports and deletes them, and imports the export.
func (s *sheet) roundTrip(kept []int64, secrets []string) {
	s.t.Helper()
	created := make([]int64, 1+s.r.IntN(3))
	for i := range created {
		created[i] = s.createOne()
	}
	before, text := s.list(kept), s.c.Do("GET", s.all, nil, "Accept", "text/csv").Want(200).Text
	s.changesNothing(text)
	s.isRestored(created, kept, secrets, before, text)
	if leavesOut := notInCSV[s.path]; leavesOut != "" {
		s.t.Logf("not created from CSV: %s", leavesOut)
		s.remove(created)
		return
	}
	s.remove(created)
	rows := s.c.Do("POST", s.path, testkit.WithoutIDs(s.t, s.importable(text, kept, secrets)), "Content-Type", "text/csv")
	if rows.Status != http.StatusOK {
		s.t.Fatalf("%q: got %s, want %d", text, rows.Text, http.StatusOK)
	}
	if after := s.list(kept); !reflect.DeepEqual(after, before) {
		s.t.Fatalf("%q: got %v, want %v", text, after, before)
	}
	bulk := testkit.Decode[rest.Import](rows)
	imported := []int64{}
	for id := bulk.First; id <= bulk.Last; id++ {
		imported = append(imported, id)
	}
	s.remove(imported)
}

// notRestored are members that no import sets: computed ones, and lists, which cells do not have.
var notRestored = map[string][]string{
	"/pxe/iso":       {"status", "error", "progress", "size", "sha256"},
	"/auth/provider": {"domains", "permissions"},
	"/client":        {"claimed_at", "created_at"},
	"/entity":        {"available_at"}, // a quarantine begins when the entity is created
}

// withoutSecrets are resources whose secrets cannot be set by CSV, or begin something.
var withoutSecrets = []string{"/client", "/pxe/iso"}

// notInCSV says why the rows of some resources' lists cannot create items.
var notInCSV = map[string]string{
	"/pxe/iso":       "an import begins, and changes the item",
	"/auth/provider": "domains and permissions are lists, which cells do not have",
}

// changesNothing sends a complete list back as it is.
func (s *sheet) changesNothing(text string) {
	s.t.Helper()
	before := s.list(nil)
	rows := len(testkit.Decode[[]any](s.c.Do("GET", s.all, nil)))
	for _, query := range []string{"?dry_run=true", "", "?partial=true"} {
		response := s.c.Do("POST", s.path+query, text, "Content-Type", "text/csv")
		done := testkit.Decode[rest.Import](response.Want(200))
		if done.Count != 0 || done.Updated != 0 || done.Refused != 0 || done.Unchanged != rows {
			s.t.Fatalf("%q sent back with %q: got %s, want %d unchanged rows", text, query, response.Text, rows)
		}
	}
	if after := s.list(nil); !reflect.DeepEqual(after, before) {
		s.t.Fatalf("%q sent back: got %v, want %v", text, after, before)
	}
}

// isRestored edits the items, and sends the list from before back.
func (s *sheet) isRestored(ids, kept []int64, secrets []string, before []map[string]any, text string) {
	s.t.Helper()
	refused := ""
	for _, id := range ids {
		for range 100 {
			s.n++
			edit := s.object(s.edit, s.example)
			if s.path == "/entity" { // an assignment ends by a release, not by an import
				delete(edit, "owner")
				delete(edit, "status")
			}
			response := s.c.Do("PATCH", fmt.Sprint(s.path, "/", id), edit)
			if refused = response.Text; response.Status == http.StatusOK {
				refused = ""
				break
			}
		}
	}
	if refused != "" {
		s.t.Fatalf("%s: got %s for the last random edit, want one that is accepted", s.path, refused)
	}
	sent := s.importable(text, kept, secrets)
	response := s.c.Do("POST", s.path, sent, "Content-Type", "text/csv")
	if response.Status != http.StatusOK {
		s.t.Fatalf("%q: got %s, want %d", sent, response.Text, http.StatusOK)
	}
	if after := s.list(kept); !reflect.DeepEqual(after, before) {
		s.t.Fatalf("%q: got %v after edits and the import, want %v", text, after, before)
	}
}

// list returns what the list shows of the items, without those in kept.
func (s *sheet) list(kept []int64) (all []map[string]any) {
	for _, item := range testkit.Decode[[]map[string]any](s.c.Do("GET", s.all, nil).Want(200)) {
		if !slices.Contains(kept, int64(item["id"].(float64))) {
			delete(item, "id")
			for _, name := range notRestored[s.path] {
				delete(item, name)
			}
			all = append(all, item)
		}
	}
	return all
}

func (s *sheet) remove(ids []int64) {
	s.t.Helper()
	if s.path == "/entity" {
		for _, id := range ids {
			s.c.Do("POST", path("/entity/%d/release", id), nil).Want(200)
			s.c.Do("PATCH", path("/entity/%d", id), `{"status": "available"}`).Want(200)
		}
	}
	s.c.Do("DELETE", s.path+"/"+strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ","), nil).Want(200)
}

// leftOut has, by the resource's path, columns that a new item needs and that lists leave out. Their values are an existing
// item's.
var leftOut = map[string]string{"/pxe/profile": "boot_script.id"}

// importable returns a list without the kept items, with a column for each secret and for each column that lists leave out.
func (s *sheet) importable(text string, kept []int64, secrets []string) string {
	s.t.Helper()
	// Package csv reads \r\n within quotes as \n.
	records, err := csv.NewReader(strings.NewReader(strings.ReplaceAll(text, "\r\n", "\r\r\n"))).ReadAll()
	if err != nil {
		s.t.Fatal(err)
	}
	more := map[string]string{}
	for _, secret := range secrets {
		if slices.Contains(withoutSecrets, s.path) {
			break
		}
		more[secret] = "a secret"
	}
	if name := leftOut[s.path]; name != "" {
		more[name] = "1"
	}
	for name, value := range more {
		records[0] = append(records[0], name)
		for i := range records[1:] {
			records[1+i] = append(records[1+i], value)
		}
	}
	records = slices.DeleteFunc(records, func(record []string) bool {
		return slices.ContainsFunc(kept, func(id int64) bool { return record[0] == fmt.Sprint(id) })
	})
	var out strings.Builder
	if err := csv.NewWriter(&out).WriteAll(records); err != nil {
		s.t.Fatal(err)
	}
	return out.String()
}

// createOne sends random bodies until one is accepted, and returns the new item's id.
func (s *sheet) createOne() int64 {
	s.t.Helper()
	var refused string
	for range 100 {
		s.n++
		answer := s.c.Do("POST", s.path, s.object(s.body, s.example))
		if answer.Status == http.StatusOK {
			return answer.ID()
		}
		refused = answer.Want(422).Text
	}
	s.t.Fatalf("got %s for the last random object, want one that is accepted", refused)
	return 0
}

func (s *sheet) object(of *openapi3.Schema, example map[string]any) map[string]any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		if slices.Contains(of.Required, name) || s.r.IntN(2) == 0 {
			if value := s.value(name, of.Properties[name].Value, example[name]); value != nil {
				object[name] = value
			}
		}
	}
	return object
}

func (s *sheet) value(name string, of *openapi3.Schema, example any) any {
	switch {
	case name == "v6", name == "full", name == "full_ip", name == "range_end", name == "gateway", name == "subnet_mask":
		return nil // IP entities have their own test
	case name == "upload":
		return nil // no random text names one
	case name == "host", name == "public_key", name == "password", name == "iso", name == "shell":
		return example // a random text is hardly ever valid
	case name == "email" && of.Type.Is("string"):
		return fmt.Sprintf("x-%d@example.com", s.n)
	case name == "address":
		return fmt.Sprintf("10.0.%d.%d", s.n/256, s.n%256)
	case of.Enum != nil:
		return of.Enum[s.r.IntN(len(of.Enum))]
	case of.Type.Is("boolean"):
		return s.r.IntN(2) == 0
	case of.Type.Is("integer"):
		return int64(*of.Min) + s.r.Int64N(1000)
	case of.Type.Is("array") || of.Properties["id"] != nil && len(of.Properties) == 1:
		return example // references
	case of.Type.Is("object"):
		inner, _ := example.(map[string]any)
		return s.object(of, inner)
	case of.Pattern != "" && regexp.MustCompile(of.Pattern).MatchString("x-1"):
		return fmt.Sprint("x-", s.n)
	case example != nil && (of.Pattern != "" || s.r.IntN(4) == 0):
		return example
	case name == "issuer":
		return fmt.Sprintf("https://login%d.example.com", s.n)
	default:
		return s.text(slices.Contains([]string{"note", "description", "desc", "default", "body"}, name)) + fmt.Sprint(s.n)
	}
}

// text returns a random text that spreadsheets and CSV readers may misinterpret. Only some members take several lines.
func (s *sheet) text(lines bool) string {
	parts := []string{"=", "+", "-", "@", "'", "''", ",", ";", `"`, " ", "é", "0", "1e3", "true", "\ufeff", "x"}
	if lines {
		parts = append(parts, "\t", "\r", "\n", "\r\n")
	}
	var text strings.Builder
	for range 1 + s.r.IntN(5) {
		text.WriteString(parts[s.r.IntN(len(parts))])
	}
	return text.String()
}
