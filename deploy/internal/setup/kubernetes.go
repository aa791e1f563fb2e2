package setup

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/deploy/internal/product"
)

// manifestPrefix begins the names of Secrets, and kubernetesOption is the option of the command secrets that prints manifests.
const manifestPrefix, kubernetesOption = "ironplane-", "--kubernetes"

// manifest is a Secret of Kubernetes.
type manifest struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   manifestMetadata  `yaml:"metadata"`
	Type       string            `yaml:"type"`
	Data       map[string]string `yaml:"data"` // base64
}

type manifestMetadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

// The types of Secrets.
const opaque, tlsPair = "Opaque", "kubernetes.io/tls"

// manifestSource says which files of the folder a Secret holds, by the Secret's keys.
type manifestSource struct {
	name, kind string
	files      map[string]string
}

// manifestSources returns the Secrets that the chart mounts. The master key, the authority's key and what is only for Consul
// stay in the folder.
func manifestSources() []manifestSource {
	passwords := map[string]string{"postgres-password": filepath.Join(setupFolder, "postgres-password")}
	for _, name := range product.Names() {
		passwords[name+"-password"] = filepath.Join(setupFolder, name+"-password")
	}
	sources := []manifestSource{
		{"setup", opaque, passwords},
		{"redis", opaque, map[string]string{"users.acl": "redis/users.acl", "password": "redis/password"}},
	}
	for _, name := range processes() {
		own := map[string]string{}
		for _, file := range []string{"redis-url", "process-key", "database-url"} {
			own[file] = filepath.Join(name, file)
		}
		sources = append(sources, manifestSource{name, opaque, own}, manifestSource{name + "-certificate", tlsPair, map[string]string{
			"tls.crt": filepath.Join(name, "mesh.crt"), "tls.key": filepath.Join(name, "mesh.key"), "ca.crt": filepath.Join(name, "mesh-ca.crt"),
		}})
	}
	return sources
}

// printManifests creates what is missing in the folder of secrets, and prints it as Secrets of Kubernetes. A second run prints
// the same, until the command certificates has created new certificates.
func (c config) printManifests(stdout io.Writer) error {
	if err := createSecrets(c); err != nil {
		return err
	}
	if err := c.createMissingCertificates(); err != nil {
		return err
	}
	encoder := yaml.NewEncoder(stdout)
	encoder.SetIndent(2)
	for _, source := range manifestSources() {
		m, err := c.readManifest(source)
		if err != nil {
			return fmt.Errorf("read the Secret %s: %w", source.name, err)
		}
		if err := encoder.Encode(m); err != nil {
			return fmt.Errorf("print the Secret %s: %w", source.name, err)
		}
	}
	return encoder.Close()
}

// readManifest reads the files of a Secret. A process lacks those that it does not need, such as the gateway a database.
func (c config) readManifest(source manifestSource) (manifest, error) {
	m := manifest{APIVersion: "v1", Kind: "Secret", Type: source.kind, Data: map[string]string{}, Metadata: manifestMetadata{
		Name: manifestPrefix + source.name,
		Labels: map[string]string{
			"app.kubernetes.io/part-of": "ironplane", "app.kubernetes.io/managed-by": "ironplane-setup",
		},
	}}
	for key, file := range source.files {
		content, err := os.ReadFile(filepath.Join(c.Secrets, file))
		if errors.Is(err, fs.ErrNotExist) && source.kind == opaque {
			continue
		}
		if err != nil {
			return manifest{}, err
		}
		m.Data[key] = base64.StdEncoding.EncodeToString(content)
	}
	return m, nil
}

// createMissingCertificates creates certificates for all processes if one has none.
func (c config) createMissingCertificates() error {
	for _, name := range processes() {
		_, err := os.Stat(filepath.Join(c.Secrets, name, "mesh-ca.crt"))
		if errors.Is(err, fs.ErrNotExist) {
			return c.createCertificates()
		}
		if err != nil {
			return fmt.Errorf("look for the certificate of %s: %w", name, err)
		}
	}
	return nil
}
