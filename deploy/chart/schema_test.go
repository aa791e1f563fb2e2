package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// schemas are the schemas of the kinds that the chart renders, from Kubernetes' own API documents and from cert-manager's
// resource definitions.
type schemas struct {
	kubernetes, certManager string // folders of the modules

	mu     sync.Mutex
	byKind map[string]*openapi3.Schema
}

// openSchemas downloads the modules that have the schemas. Go verifies their checksums.
func openSchemas(t testing.TB) *schemas {
	t.Helper()
	folder := func(module string) string {
		cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
		cmd.Dir = t.TempDir() // outside of the repository, whose go.mod does not have them
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.Output()
		var downloaded struct{ Dir, Error string }
		if err = errors.Join(err, json.Unmarshal(out, &downloaded)); err != nil {
			t.Fatalf("download %s: %v %s", module, err, downloaded.Error)
		}
		return downloaded.Dir
	}
	return &schemas{
		kubernetes:  folder("k8s.io/kubernetes@" + pinned(t, "KUBERNETES")),
		certManager: folder("github.com/cert-manager/cert-manager@" + pinned(t, "CERT_MANAGER")),
		byKind:      map[string]*openapi3.Schema{},
	}
}

// of returns the schema of a kind.
func (s *schemas) of(apiVersion, kind string) (*openapi3.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := apiVersion + " " + kind
	if s.byKind[key] != nil {
		return s.byKind[key], nil
	}
	load := s.fromDocument
	if strings.HasPrefix(apiVersion, "cert-manager.io/") {
		load = s.fromDefinition
	}
	schema, err := load(apiVersion, kind)
	if err != nil {
		return nil, fmt.Errorf("find the schema of %s: %w", key, err)
	}
	forbidUnknown(schema, map[*openapi3.Schema]bool{})
	s.byKind[key] = schema
	return schema, nil
}

// fromDocument returns a schema of Kubernetes' API document of a group and version.
func (s *schemas) fromDocument(apiVersion, kind string) (*openapi3.Schema, error) {
	path, version := "apis__", strings.ReplaceAll(apiVersion, "/", "__")
	group, number, hasGroup := strings.Cut(apiVersion, "/")
	if !hasGroup {
		path, group, number = "api__", "", apiVersion
	}
	document, err := openapi3.NewLoader().LoadFromFile(filepath.Join(s.kubernetes, "api/openapi-spec/v3", path+version+"_openapi.json"))
	if err != nil {
		return nil, err
	}
	for _, ref := range document.Components.Schemas {
		kinds, _ := ref.Value.Extensions["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			if k, _ := k.(map[string]any); k["group"] == group && k["version"] == number && k["kind"] == kind {
				return ref.Value, nil
			}
		}
	}
	return nil, errors.New("the document has no such kind")
}

// fromDefinition returns a schema of cert-manager's resource definitions.
func (s *schemas) fromDefinition(apiVersion, kind string) (*openapi3.Schema, error) {
	text, err := os.ReadFile(filepath.Join(s.certManager, "deploy/crds", "crd-"+strings.ToLower(kind)+"s.yaml"))
	if err != nil {
		return nil, err
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string `yaml:"name"`
				Schema struct {
					Value map[string]any `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return nil, err
	}
	for _, v := range definition.Spec.Versions {
		if "cert-manager.io/"+v.Name != apiVersion {
			continue
		}
		encoded, err := json.Marshal(v.Schema.Value)
		if err != nil {
			return nil, err
		}
		schema := new(openapi3.Schema)
		if err := schema.UnmarshalJSON(encoded); err != nil {
			return nil, err
		}
		delete(schema.Properties, "metadata") // any object
		schema.Properties["metadata"] = openapi3.NewSchemaRef("", openapi3.NewObjectSchema().WithAnyAdditionalProperties())
		return schema, nil
	}
	return nil, errors.New("the definition has no such version")
}

// forbidUnknown makes a schema refuse unknown members, as the API server does with strict validation.
func forbidUnknown(s *openapi3.Schema, seen map[*openapi3.Schema]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	if _, isOpen := s.Extensions["x-kubernetes-preserve-unknown-fields"]; len(s.Properties) > 0 && !isOpen &&
		s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
		s.AdditionalProperties.Has = new(bool)
	}
	s.Default = nil // of objects, which does not pass for one of their schemas
	nested := []*openapi3.SchemaRef{s.Items, s.AdditionalProperties.Schema}
	for _, member := range s.Properties {
		nested = append(nested, member)
	}
	for _, list := range []openapi3.SchemaRefs{s.AllOf, s.AnyOf, s.OneOf} {
		nested = append(nested, list...)
	}
	for _, ref := range nested {
		if ref != nil {
			forbidUnknown(ref.Value, seen)
		}
	}
}

// validate returns what is wrong with an item.
func (s *schemas) validate(i item) error {
	schema, err := s.of(i.APIVersion, i.Kind)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(i.all)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(encoded, &value); err != nil {
		return err
	}
	return schema.VisitJSON(value, openapi3.MultiErrors())
}

// TestManifestsAreValid validates every manifest of every variant. Unknown members are errors.
func TestManifestsAreValid(t *testing.T) {
	t.Parallel()
	s := openSchemas(t)
	kinds := map[string]int{}
	for name := range variants {
		names := map[string]bool{}
		for _, i := range render(t, name) {
			kinds[i.Kind]++
			if err := s.validate(i); err != nil {
				t.Errorf("%s: %s %s: %v", name, i.Kind, i.Metadata.Name, err)
			}
			if id := i.Kind + " " + i.Metadata.Name; names[id] {
				t.Errorf("%s: got %s twice, want it once", name, id)
			} else {
				names[id] = true
			}
		}
	}
	for _, kind := range []string{"Deployment", "Job", "Service", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler",
		"PersistentVolumeClaim", "Certificate", "Issuer"} {
		if kinds[kind] == 0 {
			t.Errorf("got no %s in any variant, want one", kind)
		}
	}
}

// TestSchemasRefuseMistakes shows that the validation finds unknown, missing and wrong members.
func TestSchemasRefuseMistakes(t *testing.T) {
	t.Parallel()
	s := openSchemas(t)
	for name, mistake := range map[string]func(i *item){
		"an unknown member": func(i *item) { i.all["spec"].(map[string]any)["replica"] = 2 },
		"a wrong type":      func(i *item) { i.all["spec"].(map[string]any)["replicas"] = "two" },
		"a missing member":  func(i *item) { delete(i.all["spec"].(map[string]any), "selector") },
		"an unknown deep member": func(i *item) {
			i.all["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["enw"] = 1
		},
	} {
		i := find(t, render(t, "default"), "Deployment", "network")
		if err := s.validate(i); err != nil {
			t.Fatal(err)
		}
		mistake(&i)
		if err := s.validate(i); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if err := s.validate(item{APIVersion: "apps/v1", Kind: "Deploymint"}); err == nil {
		t.Error("an unknown kind: got no error, want one")
	}
	i := find(t, render(t, "cert-manager"), "Certificate", "network")
	i.all["spec"].(map[string]any)["uri"] = "x"
	if err := s.validate(i); err == nil {
		t.Error("a Certificate with an unknown member: got no error, want one")
	}
}
