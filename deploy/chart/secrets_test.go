package chart

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// printedSecrets returns the Secrets that setup secrets --kubernetes prints.
func printedSecrets(t testing.TB) []item {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", root+"/deploy/setup", "secrets", "--kubernetes")
	cmd.Env = append(os.Environ(), "IRONPLANE_SECRETS="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run setup secrets --kubernetes: %v", err)
	}
	return decode(t, string(out))
}

// TestSecretsOfSetup shows that setup prints every Secret that the chart mounts, with each file that a variable names.
func TestSecretsOfSetup(t *testing.T) {
	t.Parallel()
	keys := map[string][]string{} // by the Secret's name
	for _, i := range printedSecrets(t) {
		data, _ := i.all["data"].(map[string]any)
		keys[i.Metadata.Name] = slices.Collect(maps.Keys(data))
	}
	all := render(t, "default")
	for _, i := range all {
		pod := i.Spec.Template.Spec
		mounted := map[string][]string{} // keys, by the volume's name
		for _, volume := range pod.Volumes {
			if volume.Secret.Name == "" {
				continue
			}
			if keys[volume.Secret.Name] == nil {
				t.Errorf("%s: got the Secret %s, want one that setup prints", i.Metadata.Name, volume.Secret.Name)
			}
			mounted[volume.Name] = keys[volume.Secret.Name]
		}
		for _, c := range pod.Containers {
			for variable, value := range c.environment() {
				rest, isSecret := strings.CutPrefix(value, "/secrets/")
				volume := "secrets"
				if !isSecret {
					rest, isSecret = strings.CutPrefix(value, "/certificate/")
					volume = "certificate"
				}
				if i.Kind == "Job" && volume == "certificate" { // migrations ask no other process
					continue
				}
				if isSecret && !slices.Contains(mounted[volume], rest) {
					t.Errorf("%s: got %s=%s, want a key of %q", i.Metadata.Name, variable, value, mounted[volume])
				}
			}
		}
	}
}

// TestNoSecretInManifests shows that the chart renders no Secret and no ConfigMap, and that secrets reach variables only by
// references to Secrets.
func TestNoSecretInManifests(t *testing.T) {
	t.Parallel()
	for variant := range variants {
		for _, i := range render(t, variant) {
			if i.Kind == "ConfigMap" || i.Kind == "Secret" {
				t.Errorf("%s: got the %s %s, want none", variant, i.Kind, i.Metadata.Name)
			}
		}
	}
	for variant, names := range map[string][]string{
		"bucket": {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, "everything": {"OTEL_EXPORTER_OTLP_HEADERS"},
	} {
		var referred []string
		for _, v := range find(t, render(t, variant), "Deployment", "pxe").Spec.Template.Spec.Containers[0].Env {
			if v.Value == "" && v.ValueFrom["secretKeyRef"] != nil {
				referred = append(referred, v.Name)
			}
		}
		if !slices.Equal(referred, names) {
			t.Errorf("%s: got references to Secrets for %q, want them for %q", variant, referred, names)
		}
	}
}

// TestCertificates shows that cert-manager issues each process the certificate that the process mounts, with its name.
func TestCertificates(t *testing.T) {
	t.Parallel()
	all := render(t, "cert-manager")
	for _, name := range append(product.Names(), principal.Gateway) {
		c := find(t, all, "Certificate", name)
		if !slices.Equal(c.Spec.URIs, []string{"spiffe://ironplane/" + name}) {
			t.Errorf("%s: got the names %q, want the process' alone", name, c.Spec.URIs)
		}
		for _, volume := range find(t, all, "Deployment", name).Spec.Template.Spec.Volumes {
			if volume.Name == "certificate" && volume.Secret.Name != c.Spec.SecretName {
				t.Errorf("%s: got the mounted Secret %s, want %s", name, volume.Secret.Name, c.Spec.SecretName)
			}
		}
	}
}
