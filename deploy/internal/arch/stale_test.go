package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	operation = regexp.MustCompile(`\b(GET|POST|PATCH|PUT|DELETE) (/[a-z][^\s` + "`" + `'"?,;)*]*)`)
	idInPath  = regexp.MustCompile(`/(\{[^}]*\}|[0-9]+|…)`)
	variable  = regexp.MustCompile(`\bIRONPLANE_[A-Z_]+[A-Z]\b`)
)

// Pages name operations of the API document, and environment variables that a program reads. The agent's paths and those
// between services, which the document does not have, are left out.
func TestDocsAreNotStale(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/openapi.json"))
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]bool{}
	for path, methods := range document.Paths {
		for method := range methods {
			operations[strings.ToUpper(method)+" "+idInPath.ReplaceAllString(path, "/{}")] = true
		}
	}
	all := pages(t)
	variables := all["docs/reference/variables.md"]
	delete(all, "CHANGELOG.md") // it names what was
	for name, page := range all {
		for _, found := range operation.FindAllStringSubmatch(page, -1) {
			path := strings.TrimRight(found[2], ".:")
			if strings.HasPrefix(path, "/i/") || strings.HasPrefix(path, "/internal/") {
				continue
			}
			if !operations[found[1]+" "+idInPath.ReplaceAllString(path, "/{}")] {
				t.Errorf("%s: got the operation %s %s, want one of the API document", name, found[1], path)
			}
		}
		for _, found := range variable.FindAllString(page, -1) {
			listed := strings.Contains(variables, "`"+found+"`") || strings.Contains(variables, "`"+strings.TrimSuffix(found, "_FILE")+"`")
			if !listed && !otherVariables[found] {
				t.Errorf("%s: got the variable %s, want one of docs/reference/variables.md", name, found)
			}
		}
	}
}

// otherVariables are read by docker-compose.yml and by the command line.
var otherVariables = map[string]bool{
	"IRONPLANE_PUBLISH": true, "IRONPLANE_POSTGRES_IMAGE": true, "IRONPLANE_REDIS_IMAGE": true, "IRONPLANE_CONSUL_IMAGE": true,
	"IRONPLANE_KEY": true, "IRONPLANE_URL": true,
}
