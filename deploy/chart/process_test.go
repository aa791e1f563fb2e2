package chart

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/runtime/resolver"
)

// composed is a service of docker-compose.yml.
type composed struct {
	Image       string         `yaml:"image"`
	Command     any            `yaml:"command"`
	ReadOnly    bool           `yaml:"read_only"`
	CapDrop     []string       `yaml:"cap_drop"`
	Environment map[string]any `yaml:"environment"`
}

// compose returns the services of docker-compose.yml.
func compose(t testing.TB) map[string]composed {
	t.Helper()
	text, err := os.ReadFile(root + "/docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]composed `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

// notInChart are services of docker-compose.yml that the chart lacks, each with the reason.
var notInChart = map[string]string{
	"secrets":  "setup secrets --kubernetes prints what it creates",
	"postgres": "it is the operator's, such as that of a cloud or of an operator of Kubernetes",
	"redis":    "it is the operator's",
	"consul":   "Kubernetes knows where processes are, and cert-manager or setup issues certificates",
}

func processes() []string { return append(product.Names(), principal.Gateway) }

// TestEveryServiceOfCompose shows that the chart runs what docker-compose.yml runs, with the same images and restrictions.
func TestEveryServiceOfCompose(t *testing.T) {
	t.Parallel()
	all := render(t, "default")
	for name, c := range compose(t) {
		if notInChart[name] != "" {
			continue
		}
		kind, item := "Deployment", name
		switch {
		case name == "setup":
			kind, item = "Job", "bootstrap"
		case strings.HasSuffix(name, "-migrate"):
			kind = "Job"
		}
		spec := find(t, all, kind, item).Spec.Template.Spec
		if len(spec.Containers) != 1 {
			t.Fatalf("%s: got %d containers, want one", name, len(spec.Containers))
		}
		in := spec.Containers[0]
		if in.Image != c.Image+":latest" {
			t.Errorf("%s: got the image %s, want %s:latest", name, in.Image, c.Image)
		}
		if command, _ := c.Command.(string); strings.Join(in.Args, " ") != command {
			t.Errorf("%s: got the command %q, want %q", name, in.Args, command)
		}
		if !c.ReadOnly || !in.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: got a root file system that can be written", name)
		}
		if !slices.Equal(c.CapDrop, []string{"ALL"}) || !slices.Equal(in.SecurityContext.Capabilities.Drop, c.CapDrop) {
			t.Errorf("%s: got the dropped capabilities %q, want ALL", name, in.SecurityContext.Capabilities.Drop)
		}
		if allowed := in.SecurityContext.AllowEscalation; allowed == nil || *allowed {
			t.Errorf("%s: got a process that may gain privileges", name)
		}
		if !spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.RunAsUser != 65532 {
			t.Errorf("%s: got the user %d, want 65532 of the image", name, spec.SecurityContext.RunAsUser)
		}
		if links := spec.EnableServiceLinks; links == nil || *links {
			t.Errorf("%s: got variables for all Services, which a process could take for its own, want none", name)
		}
		if token := spec.AutomountToken; token == nil || *token {
			t.Errorf("%s: got a token for Kubernetes' API, want none", name)
		}
	}
}

// chartOnly are variables that only the chart has, and composeOnly those that it lacks, each with the reason.
var (
	chartOnly = map[string]string{
		"IRONPLANE_MESH_CERTIFICATE": "there is no Consul that issues certificates",
		"IRONPLANE_MESH_KEY":         "there is no Consul that issues certificates",
		"IRONPLANE_MESH_CA":          "there is no Consul that issues certificates",
		"IRONPLANE_CONNECTIONS":      "the limit of the database's roles follows from it",
		"IRONPLANE_ALLOWED_NETWORKS": "it is set once for all processes",
	}
	composeOnly = map[string]string{
		"CONSUL_URL":        "there is no Consul",
		"CONSUL_TOKEN_FILE": "there is no Consul",
	}
	// otherValues are variables with another default than in docker-compose.yml.
	otherValues = map[string]string{
		"IRONPLANE_SERVICES":    "it has the names of headless Services",
		"IRONPLANE_MAINTENANCE": "it is a ConfigMap: Secrets are not for people's texts",
		"IRONPLANE_DRAIN_DELAY": "other processes find out by name servers",
		"IRONPLANE_LOG_FORMAT":  "clusters collect lines as JSON",
	}
)

// values returns the variables of a process in values.yaml.
func values(t testing.TB, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type own struct {
		Environment map[string]string
		Secret      map[string]any `yaml:"secretEnvironment"`
	}
	var file struct {
		own      `yaml:",inline"`
		Gateway  own
		Services map[string]own
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all, process := maps.Clone(file.Environment), file.Services[name]
	if name == principal.Gateway {
		process = file.Gateway
	}
	maps.Copy(all, process.Environment)
	for _, secrets := range []map[string]any{file.Secret, process.Secret} {
		for variable := range secrets {
			all[variable] = ""
		}
	}
	return all
}

var fallback = regexp.MustCompile(`^\$\{[A-Z_]+:-(.*)\}$`)

// TestVariablesOfCompose shows that a process has the variables that it has in docker-compose.yml, with the same defaults.
func TestVariablesOfCompose(t *testing.T) {
	t.Parallel()
	services, all := compose(t), render(t, "default")
	for _, name := range processes() {
		in := find(t, all, "Deployment", name).Spec.Template.Spec.Containers[0].environment()
		known := values(t, name)
		maps.Copy(known, in)
		for variable, value := range services[name].Environment {
			text, isText := value.(string)
			if match := fallback.FindStringSubmatch(text); match != nil {
				text = match[1]
			}
			got, isKnown := known[variable]
			switch {
			case composeOnly[variable] != "", name == principal.Gateway && variable == "DATABASE_URL_FILE":
				if isKnown {
					t.Errorf("%s: got %s, want it only in docker-compose.yml", name, variable)
				}
			case !isKnown:
				t.Errorf("%s: got no %s, want it as in docker-compose.yml", name, variable)
			case isText && got != text && otherValues[variable] == "":
				t.Errorf("%s: got %s=%q, want %q as in docker-compose.yml", name, variable, got, text)
			}
		}
		for variable := range known {
			if _, isComposed := services[name].Environment[variable]; !isComposed && chartOnly[variable] == "" {
				t.Errorf("%s: got %s, which docker-compose.yml lacks: add it there, or to chartOnly with the reason", name, variable)
			}
		}
	}
}

// TestProbesAndDrain shows that an instance gets requests once it is ready, and that it has the time to end them.
func TestProbesAndDrain(t *testing.T) {
	t.Parallel()
	const jobs = 5 * time.Second // what a process gives its jobs once it is told to end
	for _, variant := range []string{"default", "everything"} {
		all := render(t, variant)
		for _, name := range processes() {
			pod := find(t, all, "Deployment", name).Spec.Template.Spec
			in := pod.Containers[0]
			for kind, p := range map[string]probe{"/healthz": in.Liveness, "/healthz at the start": in.Startup, "/readyz": in.Readiness} {
				if path, _, _ := strings.Cut(kind, " "); p.HTTPGet.Path != path || p.HTTPGet.Port != "operations" {
					t.Errorf("%s: got the probe %+v, want %s at the port for operators", name, p.HTTPGet, kind)
				}
			}
			delay, err := time.ParseDuration(in.environment()["IRONPLANE_DRAIN_DELAY"])
			if err != nil || delay <= resolver.Interval {
				t.Errorf("%s: got the drain delay %v, %v, want more than %v, when others resolve names", name, delay, err, resolver.Interval)
			}
			least := delay + process.DrainTimeout + jobs
			if grace := time.Duration(pod.TerminationGracePeriod) * time.Second; grace <= least {
				t.Errorf("%s: got %v until it is killed, want more than %v", name, grace, least)
			}
		}
	}
}

// TestServicesAreHeadless shows that processes find each other by names that resolve to all instances.
func TestServicesAreHeadless(t *testing.T) {
	t.Parallel()
	all := render(t, "default")
	for _, name := range processes() {
		var addresses process.Addresses
		text := find(t, all, "Deployment", name).Spec.Template.Spec.Containers[0].environment()["IRONPLANE_SERVICES"]
		if err := addresses.UnmarshalText([]byte(text)); err != nil || len(addresses) != len(product.Services) {
			t.Errorf("%s: got %q, %v, want the addresses of all services", name, text, err)
		}
		for service, at := range addresses {
			s := find(t, all, "Service", service)
			want := s.Metadata.Name + ":8443"
			if s.Spec.ClusterIP != "None" || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != 8443 || !slices.Equal(at, []string{want}) {
				t.Errorf("%s: got %s at %v and %+v, want a headless Service at %s", name, service, at, s.Spec, want)
			}
		}
		if budget := find(t, all, "PodDisruptionBudget", name); budget.Spec.MaxUnavailable != 1 {
			t.Errorf("%s: got %d instances that may be away, want 1", name, budget.Spec.MaxUnavailable)
		}
	}
	if got := find(t, all, "Service", principal.Gateway).Spec.ClusterIP; got != "" {
		t.Errorf("got a gateway with the address %q, want one that Kubernetes chooses", got)
	}
}

// TestNetworkPolicies shows that a service can be reached by the processes that a guard of one of its routes admits, and by no
// others.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	p, _ := producttest.Shared(t)
	all := render(t, "default")
	for _, name := range product.Names() {
		admitted := map[string]bool{}
		for _, o := range rest.Operations(p.Routes[name]) {
			for _, peer := range processes() {
				if !guard.IsInternal(o.Guard) {
					admitted[principal.Gateway] = true
				} else if o.Guard.Check(&principal.Call{Peer: peer}, permission.Read, 0) == nil && peer != name {
					admitted[peer] = true
				}
			}
		}
		policy := find(t, all, "NetworkPolicy", name).Spec
		if len(policy.Ingress) != 1 || len(policy.Ingress[0].Ports) != 1 || policy.Ingress[0].Ports[0].Port != "mesh" {
			t.Fatalf("%s: got the rules %+v, want one for the port of the mesh", name, policy.Ingress)
		}
		var got []string
		for _, from := range policy.Ingress[0].From {
			got = append(got, from.PodSelector.MatchLabels["app.kubernetes.io/component"])
			if from.PodSelector.MatchLabels["app.kubernetes.io/instance"] != "hosting" {
				t.Errorf("%s: got callers of any installation, want those of this one", name)
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(maps.Keys(admitted)); !slices.Equal(got, want) {
			t.Errorf("%s: got the callers %q, want %q as its guards admit", name, got, want)
		}
		if policy.PodSelector.MatchLabels["app.kubernetes.io/component"] != name {
			t.Errorf("%s: got a policy for %v, want one for the service", name, policy.PodSelector.MatchLabels)
		}
	}
	if gateway := find(t, all, "NetworkPolicy", principal.Gateway).Spec.Ingress; len(gateway) != 1 || len(gateway[0].From) != 0 ||
		gateway[0].Ports[0].Port != "http" {
		t.Errorf("got the rules %+v for the gateway, want one that admits everyone to the API alone", gateway)
	}
}

// TestSelectors shows that whatever selects pods selects those of one process, and no pods of Jobs.
func TestSelectors(t *testing.T) {
	t.Parallel()
	type labels = map[string]any
	member := func(i item, path ...string) labels {
		at := labels(i.all)
		for _, name := range path {
			at, _ = at[name].(labels)
		}
		return at
	}
	selectors := map[string][]string{
		"Service": {"spec", "selector"}, "PodDisruptionBudget": {"spec", "selector", "matchLabels"},
		"Deployment": {"spec", "selector", "matchLabels"}, "NetworkPolicy": {"spec", "podSelector", "matchLabels"},
	}
	all, checked := render(t, "default"), 0
	for _, i := range all {
		component := i.Metadata.Labels["app.kubernetes.io/component"]
		if selectors[i.Kind] == nil || component == "jobs" {
			continue
		}
		selector := member(i, selectors[i.Kind]...)
		var selected []string
		for _, workload := range all {
			pods := member(workload, "spec", "template", "metadata", "labels")
			matches := len(pods) > 0
			for name, value := range selector {
				matches = matches && pods[name] == value
			}
			if matches {
				selected = append(selected, workload.Kind+" "+workload.Metadata.Name)
			}
		}
		if want := "Deployment hosting-ironplane-" + component; len(selected) != 1 || selected[0] != want {
			t.Errorf("%s %s: got the pods of %q, want those of %s", i.Kind, i.Metadata.Name, selected, want)
		}
		checked++
	}
	if want := len(selectors) * len(processes()); checked != want {
		t.Errorf("got %d selectors, want %d", checked, want)
	}
}

// TestAutoscaling shows that the autoscaler alone decides on the number of gateways.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	all := render(t, "autoscaling")
	find(t, all, "HorizontalPodAutoscaler", principal.Gateway)
	if replicas := find(t, all, "Deployment", principal.Gateway).Spec.Replicas; replicas != nil {
		t.Errorf("got %d gateways in the Deployment, want the autoscaler's number", *replicas)
	}
	if replicas := find(t, render(t, "default"), "Deployment", principal.Gateway).Spec.Replicas; replicas == nil || *replicas != 2 {
		t.Errorf("got %v gateways without an autoscaler, want 2", replicas)
	}
}

// TestRoleConnections shows that the roles' limit has room for all instances of the largest service while one is replaced.
func TestRoleConnections(t *testing.T) {
	t.Parallel()
	for variant, instances := range map[string]int{"default": 2, "bucket": 3} {
		all := render(t, variant)
		service := find(t, all, "Deployment", "network").Spec.Template.Spec.Containers[0].environment()
		connections, err := strconv.Atoi(service["IRONPLANE_CONNECTIONS"])
		if err != nil {
			t.Fatal(err)
		}
		got := find(t, all, "Job", "bootstrap").Spec.Template.Spec.Containers[0].environment()["IRONPLANE_ROLE_CONNECTIONS"]
		if want := strconv.Itoa(connections*(instances+1) + 3); got != want {
			t.Errorf("%s: got the limit %s, want %s", variant, got, want)
		}
	}
}

// TestVolumesOfOperators shows that a file of the operator, such as an authority's certificate, is mounted in every pod.
func TestVolumesOfOperators(t *testing.T) {
	t.Parallel()
	pods := 0
	for _, i := range render(t, "everything") {
		if i.Kind != "Deployment" && i.Kind != "Job" {
			continue
		}
		pods++
		spec := i.Spec.Template.Spec
		isMounted := slices.ContainsFunc(spec.Containers[0].Mounts, func(m mount) bool { return m.Name == "ca" && m.Path == "/ca" })
		isVolume := false
		for _, v := range spec.Volumes {
			isVolume = isVolume || v.Name == "ca"
		}
		if !isMounted || !isVolume {
			t.Errorf("%s %s: got the volume %t and its mount %t, want both", i.Kind, i.Metadata.Name, isVolume, isMounted)
		}
	}
	if want := 2*len(processes()) - 1 + 1; pods != want { // the gateway has no migration, and the roles have a Job
		t.Errorf("got %d workloads, want %d", pods, want)
	}
}
