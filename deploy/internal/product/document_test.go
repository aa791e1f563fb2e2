package product_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// identifier matches names that every language can write: words, with a hyphen or an underscore between them.
var identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*$`)

var withoutSeparators = strings.NewReplacer("-", "", "_", "", " ", "")

// TestPolicyIsDeterministic writes the page several times, because a random order of a map may repeat by chance.
func TestPolicyIsDeterministic(t *testing.T) {
	t.Parallel()
	first := product.Policy()
	for range 100 {
		if second := product.Policy(); second != first {
			t.Fatal("got another policy from the same routes, want the same one")
		}
	}
}

// TestPolicyMarksPermissions compares the marks of permissions with the operations that the page lists.
func TestPolicyMarksPermissions(t *testing.T) {
	t.Parallel()
	operations, permissions, _ := strings.Cut(product.Policy(), "## Permissions")
	subscribed := map[string]bool{} // permissions that makers of webhooks need
	for _, s := range catalog.Services {
		for _, needed := range s.Topics {
			for _, p := range needed {
				subscribed[p.String()] = true
			}
		}
	}
	marked := 0
	for p := range permission.Permission(permission.Count) {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(p.String()) + "` \\| (.*) \\| (.*) \\|$").FindStringSubmatch(permissions)
		if row == nil {
			t.Fatalf("got no row of %s in %s, want one", p, permissions)
		}
		for i, access := range []permission.Access{permission.Read, permission.Write} {
			asked := regexp.MustCompile(regexp.QuoteMeta(p.String())+`( or [a-z ]+)? `+access.String()).FindAllString(operations, -1)
			want := fmt.Sprint(len(asked))
			if len(asked) == 0 {
				want = "guards nothing"
			}
			if len(asked) == 0 && access == permission.Read && subscribed[p.String()] {
				want = "events of webhooks"
			}
			if row[1+i] != want {
				t.Errorf("%s %s: got %q, want %q", p, access, row[1+i], want)
			}
			if want == "guards nothing" {
				marked++
			}
		}
	}
	if marked == 0 {
		t.Errorf("got %d marked accesses, want some", marked)
	}
}

// TestKeptMembers checks that the members that docs/reference/kept.md lists exist, in a body or a response of their collection.
func TestKeptMembers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/kept.md")
	if err != nil {
		t.Fatal(err)
	}
	merged, err := product.Document()
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData([]byte(testkit.JSON(merged)))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(/[^`]*)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 15 {
		t.Errorf("got %d rows, want at least 15", len(rows))
	}
	quoted := regexp.MustCompile("`([^`]*)`")
	for _, row := range rows {
		for _, member := range quoted.FindAllStringSubmatch(row[2], -1) {
			if !hasMember(document, row[1], strings.Split(member[1], ".")) {
				t.Errorf("got the member %s of %s, want one that its operations have", member[1], row[1])
			}
		}
	}
}

// hasMember reports whether a body of a path, or of the items below it, has a member.
func hasMember(document *openapi3.T, path string, member []string) bool {
	for _, at := range document.Paths.InMatchingOrder() {
		if below, ok := strings.CutPrefix(at, path); !ok || below != "" && !identifierInPath.MatchString(below) {
			continue
		}
		for _, o := range document.Paths.Value(at).Operations() {
			if o.RequestBody == nil || o.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			body := o.RequestBody.Value.Content["application/json"].Schema.Value
			for i, name := range member {
				property := body.Properties[name]
				if property == nil {
					break
				}
				if i == len(member)-1 {
					return true
				}
				body = property.Value
				for _, either := range body.AnyOf {
					if !either.Value.Type.Is("null") {
						body = either.Value
					}
				}
			}
		}
	}
	return false
}

// identifierInPath matches the end of the path of an item.
var identifierInPath = regexp.MustCompile(`^/{[a-z_]+}$`)

// TestDocumentNames checks that no two names become the same identifier, and that everything is described.
func TestDocumentNames(t *testing.T) {
	t.Parallel()
	merged, err := product.Document()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	apart := func(where string, names ...string) {
		t.Helper()
		known := map[string]string{}
		for _, name := range names {
			if !identifier.MatchString(name) {
				t.Errorf("%s: got %q, want an identifier", where, name)
			}
			bare := strings.ToLower(withoutSeparators.Replace(name))
			if other, ok := known[bare]; ok {
				t.Errorf("%s: got both %s and %s, want one of them", where, other, name)
			}
			known[bare] = name
		}
	}
	apart("the document", slices.Collect(maps.Keys(document.Components.Schemas))...)
	for name, s := range document.Components.Schemas {
		apart(name, slices.Collect(maps.Keys(s.Value.Properties))...)
	}
	var operations, tags []string
	for _, tag := range document.Tags {
		tags = append(tags, strings.ReplaceAll(tag.Name, " ", "_"))
	}
	apart("the list of tags", tags...)
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			operations = append(operations, o.OperationID)
			var parameters []string
			for _, p := range o.Parameters {
				parameters = append(parameters, p.Value.Name)
				if p.Value.Description == "" {
					t.Errorf("%s of %s %s: got no description, want one", p.Value.Name, method, path)
				}
			}
			apart(o.OperationID, parameters...)
			if tag := document.Tags.Get(o.Tags[0]); tag == nil || tag.Description == "" {
				t.Errorf("%s %s: got no section, want one with a description: see rest.Section", method, path)
			}
			if o.RequestBody == nil || o.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			if o.RequestBody.Value.Content["application/json"].Schema.Ref == "" {
				t.Errorf("the body of %s %s: got no name, want one", method, path)
			}
		}
	}
	apart("the document", operations...)
	for _, wanted := range []string{
		"listIPEntities", "createIPGroup", "updatePortSpeed", "deleteAPIKey", "getDHCPServer", "listForwardingGateways",
	} {
		if !slices.Contains(operations, wanted) {
			t.Errorf("got the operations %v, want %s among them", operations, wanted)
		}
	}
}

// TestDocumentBounds checks that the document has the code's rules: null where it clears a member, enums, patterns, maxima
// and the types of filters.
func TestDocumentBounds(t *testing.T) {
	t.Parallel()
	document, err := product.Document()
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"UpdateIPEntityBody/vlan":                `"format":"int32","maximum":4094,"minimum":1,"type":["integer","null"]`,
		"CreateIPEntityBody/vlan":                `"format":"int32","maximum":4094,"minimum":1,"type":"integer"`,
		"UpdateIPEntityBody/v4":                  `"anyOf":[{"$ref":"#/components/schemas/UpdateIPEntityBodyV4"},{"type":"null"}]`,
		"UpdateFieldBody/type":                   `{"type":"null"}`,
		"UpdateForwardingGatewayBody/groups":     `"type":["array","null"]`,
		"CreateIPEntityBodyV4/gateway":           `"format":"ipv4"`,
		"UpdateIPEntityBodyV6/gateway":           `"format":"ipv6"`,
		"IPEntity/v6_gateway":                    `"format":"ipv6"`,
		"CreateFieldBody/type":                   `"enum":["checkbox","date","integer","select","text"]`,
		"CreateFieldBody/slug":                   `"maxLength":64,"minLength":1,"pattern":"^[a-z0-9][a-z0-9_-]*$"`,
		"CreateForwardingGatewayBody/groups":     `"items":{"$ref":"#/components/schemas/RefBody"},"maxItems":1000`,
		"CreateForwardingGatewayBody/port_limit": `Also accepted as port limit`,
		"CreateForwardingGatewayBody/port limit": `null`,
		"CreateAPIKeyBody/expires_at":            `"$ref":"#/components/schemas/TimestampBody"`,
	} {
		name, member, _ := strings.Cut(at, "/")
		properties := document.Components["schemas"][name]["properties"].(openapi.Schema)
		if got := testkit.JSON(properties[member]); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s in it", at, got, want)
		}
	}
	if view := testkit.JSON(
		document.Paths["/entity/{entity_id}"]["get"],
	); !strings.Contains(
		view,
		`"name":"include","required":false,"schema":{"items":{"enum":["fields"],"type":"string"},"type":"array"}`,
	) {
		t.Errorf("got %s, want the parameter include with fields in the view of an IP entity", view)
	}
	list := testkit.JSON(document.Paths["/entity"]["get"])
	for _, filter := range []string{`"name":"vlan","required":false,"schema":{"format":"int32","type":"integer"}`, `"name":"billing_id","required":false,"schema":{"type":"string"}`} {
		if !strings.Contains(list, filter) {
			t.Errorf("got %s, want the filter %s in the list of IP entities", list, filter)
		}
	}
}

// The merged document is valid, and has each public operation of each service.
func TestDocument(t *testing.T) { shared(t, testDocument) }

func testDocument(t *testing.T, p *product.Product, c *testkit.Client) {
	document, err := openapi3.NewLoader().LoadFromData([]byte(c.WithKey("").Do("GET", "/-/openapi.json", nil).Want(200).Text))
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	testOlderDocument(t, c, document)
	operations := 0
	for _, routes := range p.Routes {
		for _, o := range rest.Operations(routes) {
			if !guard.IsInternal(o.Guard) {
				operations++
				if document.Paths.Value(o.Path).GetOperation(o.Method) == nil {
					t.Errorf("got no %s %s in the document, want it there", o.Method, o.Path)
				}
			}
		}
	}
	for _, item := range document.Paths.Map() {
		operations -= len(item.Operations())
	}
	if operations != 0 {
		t.Errorf("got %d operations too many in the document, want none", -operations)
	}
	for _, path := range []string{"/-/docs", "/-/docs/", "/-/docs/swagger-ui-bundle.js", "/-/docs/swagger-ui.css"} {
		c.WithKey("").Do("GET", path, nil).Want(200)
	}
	c.WithKey("").Do("GET", "/-/docs/nothing", nil).Want(404)
	c.WithKey("").Do("GET", "/-/health", nil).Want(200)
	c.WithKey("").Do("GET", "/-/nothing", nil).Want(404)
	c.WithKey("").Do("POST", "/-/health", `{}`).Want(405)
}

// testOlderDocument says that the document in OpenAPI 3.0 is valid, has all operations and schemas, and nothing that only 3.1 has.
func testOlderDocument(t *testing.T, c *testkit.Client, document *openapi3.T) {
	t.Helper()
	text := c.WithKey("").Do("GET", "/-/openapi.json?version=3.0", nil).Want(200).Text
	older, err := openapi3.NewLoader().LoadFromData([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := older.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	if older.OpenAPI != "3.0.3" || older.Paths.Len() != document.Paths.Len() ||
		len(older.Components.Schemas) != len(document.Components.Schemas) {
		t.Errorf("got OpenAPI %s with %d paths, want 3.0.3 with %d", older.OpenAPI, older.Paths.Len(), document.Paths.Len())
	}
	for _, newer := range []string{`"null"`, `"examples":`, `"type":[`} {
		if strings.Contains(text, newer) {
			t.Errorf("got %s in a document in OpenAPI 3.0", newer)
		}
	}
	vlan := testkit.JSON(older.Components.Schemas["UpdateIPEntityBody"].Value.Properties["vlan"])
	if !strings.Contains(vlan, `"nullable":true`) || !strings.Contains(vlan, `"type":"integer"`) {
		t.Errorf("got %s for the VLAN in an edit, want an integer or null", vlan)
	}
	c.WithKey("").Do("GET", "/-/openapi.json?version=2.0", nil).Want(400)
}
