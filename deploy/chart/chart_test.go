// Package chart has the Helm chart of Ironplane, and its tests. They render it with Helm, validate what it renders with the
// schemas of Kubernetes, and compare it with docker-compose.yml.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

// pinned returns the value of a variable in the Makefile, which pins the versions of Helm, Kubernetes and cert-manager.
func pinned(t testing.TB, variable string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + variable + ` := (.+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("got no variable %s in the Makefile, want one", variable)
	}
	return string(found[1])
}

// helm runs Helm, and returns what it prints.
func helm(t testing.TB, arguments ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", pinned(t, "HELM")}, arguments...)...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s%s", arguments[0], err, &failure, &out)
	}
	return out.String(), nil
}

// variants are the values with which the chart is linted, rendered and validated.
var variants = map[string][]string{
	"default":      nil,
	"cert-manager": {"--set", "certManager.enabled=true"},
	"issuer":       {"--set", "certManager.enabled=true,certManager.issuer.kind=ClusterIssuer,certManager.issuer.name=internal"},
	"autoscaling":  {"--set", "gateway.autoscaling.enabled=true"},
	"bucket": {
		"--set", "services.pxe.replicas=3,services.pxe.environment.IRONPLANE_STORE=s3://drivers?region=eu",
		"--set", "services.pxe.secretEnvironment.AWS_ACCESS_KEY_ID.name=store,services.pxe.secretEnvironment.AWS_ACCESS_KEY_ID.key=id",
		"--set", "services.pxe.secretEnvironment.AWS_SECRET_ACCESS_KEY.name=store",
	},
	"everything": {
		"--set", "image.registry=registry.example/hosting,image.tag=v1.2.3,image.pullSecrets[0].name=registry",
		"--set", "nodeSelector.pool=api,tolerations[0].key=api,tolerations[0].operator=Exists,podAnnotations.a=b",
		"--set", "networkPolicy.gatewayFrom[0].ipBlock.cidr=192.0.2.0/24,networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
		"--set", "gateway.service.type=LoadBalancer,gateway.service.annotations.a=b,services.pxe.store.storageClass=fast",
		"--set", "services.network.resources.limits.memory=1Gi,environment.PGSSLMODE=verify-full,drainDelaySeconds=40",
		"--set", "volumes[0].name=ca,volumes[0].configMap.name=ca,volumeMounts[0].name=ca,volumeMounts[0].mountPath=/ca",
		"--set", "secretEnvironment.OTEL_EXPORTER_OTLP_HEADERS.name=collector",
	},
	"little": {"--set", "networkPolicy.enabled=false,podDisruptionBudget.enabled=false,bootstrap.enabled=false"},
}

// item is a rendered manifest: what tests look at, and all of it.
type item struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec spec           `yaml:"spec"`
	all  map[string]any // also what the members above lack
}

// spec has the members of the specs of all kinds that tests look at.
type spec struct {
	Replicas       *int   `yaml:"replicas"`
	ClusterIP      string `yaml:"clusterIP"`
	MaxUnavailable int    `yaml:"maxUnavailable"`
	PodSelector    struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	} `yaml:"podSelector"`
	Ingress []ingress `yaml:"ingress"`
	Ports   []struct {
		Port int `yaml:"port"`
	} `yaml:"ports"`
	URIs       []string `yaml:"uris"`
	SecretName string   `yaml:"secretName"`
	Template   struct {
		Spec pod `yaml:"spec"`
	} `yaml:"template"`
}

type ingress struct {
	Ports []struct {
		Port string `yaml:"port"`
	} `yaml:"ports"`
	From []struct {
		PodSelector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"podSelector"`
	} `yaml:"from"`
}

type pod struct {
	EnableServiceLinks     *bool       `yaml:"enableServiceLinks"`
	AutomountToken         *bool       `yaml:"automountServiceAccountToken"`
	TerminationGracePeriod int         `yaml:"terminationGracePeriodSeconds"`
	SecurityContext        security    `yaml:"securityContext"`
	Containers             []container `yaml:"containers"`
	Volumes                []struct {
		Name   string `yaml:"name"`
		Secret struct {
			Name string `yaml:"secretName"`
		} `yaml:"secret"`
	} `yaml:"volumes"`
}

type container struct {
	Image           string   `yaml:"image"`
	Args            []string `yaml:"args"`
	SecurityContext security `yaml:"securityContext"`
	Env             []struct {
		Name      string         `yaml:"name"`
		Value     string         `yaml:"value"`
		ValueFrom map[string]any `yaml:"valueFrom"`
	} `yaml:"env"`
	Mounts    []mount `yaml:"volumeMounts"`
	Liveness  probe   `yaml:"livenessProbe"`
	Readiness probe   `yaml:"readinessProbe"`
	Startup   probe   `yaml:"startupProbe"`
}

type mount struct {
	Name string `yaml:"name"`
	Path string `yaml:"mountPath"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

type security struct {
	RunAsNonRoot           bool  `yaml:"runAsNonRoot"`
	RunAsUser              int   `yaml:"runAsUser"`
	ReadOnlyRootFilesystem bool  `yaml:"readOnlyRootFilesystem"`
	AllowEscalation        *bool `yaml:"allowPrivilegeEscalation"`
	Capabilities           struct {
		Drop []string `yaml:"drop"`
	} `yaml:"capabilities"`
}

// environment returns the variables of a container.
func (c container) environment() map[string]string {
	variables := map[string]string{}
	for _, v := range c.Env {
		variables[v.Name] = v.Value
	}
	return variables
}

var rendered struct {
	sync.Mutex
	texts map[string]string // by variant
}

// renderText returns the manifests that Helm renders for a variant.
func renderText(t testing.TB, variant string) string {
	t.Helper()
	rendered.Lock()
	defer rendered.Unlock()
	if text, ok := rendered.texts[variant]; ok {
		return text
	}
	arguments := []string{"template", "hosting", ".", "--kube-version", pinned(t, "KUBERNETES")}
	text, err := helm(t, append(arguments, variants[variant]...)...)
	if err != nil {
		t.Fatal(err)
	}
	if rendered.texts == nil {
		rendered.texts = map[string]string{}
	}
	rendered.texts[variant] = text
	return text
}

// render returns the items that Helm renders for a variant.
func render(t testing.TB, variant string) []item {
	t.Helper()
	return decode(t, renderText(t, variant))
}

// decode returns the items of a text with several documents.
func decode(t testing.TB, text string) (all []item) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		var i item
		if err := errors.Join(node.Decode(&i), node.Decode(&i.all)); err != nil {
			t.Fatalf("%s: %v", i.Metadata.Name, err)
		}
		if i.Kind != "" {
			all = append(all, i)
		}
	}
}

// find returns the item of a kind with this name.
func find(t testing.TB, all []item, kind, name string) item {
	t.Helper()
	for _, i := range all {
		if i.Kind == kind && i.Metadata.Name == "hosting-ironplane-"+name {
			return i
		}
	}
	t.Fatalf("got no %s for %s, want one", kind, name)
	return item{}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range variants {
		arguments := []string{"lint", ".", "--strict", "--quiet", "--kube-version", pinned(t, "KUBERNETES")}
		if out, err := helm(t, append(arguments, values...)...); err != nil {
			t.Errorf("%s: got %v: %s, want no problem", name, err, out)
		}
	}
}

// Values that cannot work are refused before anything is installed, with a reason.
func TestInvalidValues(t *testing.T) {
	t.Parallel()
	for values, reason := range map[string]string{
		"services.pxe.replicas=2":                      "ReadWriteMany",
		"environment.IRONPLANE_SMTP_PASSWORD=x":        "IRONPLANE_SMTP_PASSWORD",
		"services.pxe.environment.AWS_ACCESS_KEY_ID=x": "AWS_ACCESS_KEY_ID",
		"environment.OTEL_EXPORTER_OTLP_HEADERS=x":     "OTEL_EXPORTER_OTLP_HEADERS",
		"services.network.environment.DATABASE_URL=x":  "DATABASE_URL",
		"gateway.environment.IRONPLANE_PROCESS_KEY=x":  "IRONPLANE_PROCESS_KEY",
		"postgres=postgres://user:password@postgres":   "/postgres",
		"gateway.replica=2":                            "replica",
		"drainDelaySeconds=5":                          "drainDelaySeconds",
		"certManager.issuer.kind=Secret":               "kind",
	} {
		_, err := helm(t, "template", "hosting", ".", "--kube-version", pinned(t, "KUBERNETES"), "--set", values)
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v, want a refusal that names %s", values, err, reason)
		}
	}
}
