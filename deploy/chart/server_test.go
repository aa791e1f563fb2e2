package chart

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// apiServer is an API server of Kubernetes with its etcd.
type apiServer struct {
	t          *testing.T
	url        string
	token      string
	kubeconfig string // the file's path
	client     *http.Client
}

// startAPIServer starts an API server as an administrator uses it. It is skipped if make operate-chart has not built one.
func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	programs, err := filepath.Abs(root + "/bin/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			t.Skipf("bin/kubernetes has no %s: make operate-chart builds it, in half an hour on two cores", name)
		}
	}
	addresses, err := ports.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	s := &apiServer{t: t, url: "https://" + addresses[2], token: rand.Text(), kubeconfig: filepath.Join(folder, "kubeconfig")}
	peer := "http://" + addresses[1]
	s.start(programs, "etcd", "--data-dir="+folder+"/etcd", "--listen-client-urls=http://"+addresses[0], "--log-level=error",
		"--advertise-client-urls=http://"+addresses[0], "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--unsafe-no-fsync")
	s.write(folder+"/tokens", s.token+",operator,operator,system:masters\n")
	s.write(folder+"/token", s.token)
	s.write(folder+"/accounts.key", newKey(t))
	host, port, _ := strings.Cut(addresses[2], ":")
	running := s.start(programs, "kube-apiserver", "--etcd-servers=http://"+addresses[0], "--bind-address="+host, "--secure-port="+port,
		"--cert-dir="+folder, "--token-auth-file="+folder+"/tokens", "--authorization-mode=RBAC", "--endpoint-reconciler-type=none",
		"--advertise-address="+host, "--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+folder+"/accounts.key", "--service-account-signing-key-file="+folder+"/accounts.key")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := running.Await(ctx, func() bool { return s.trust(folder+"/apiserver.crt") && s.isReady() }); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	s.write(s.kubeconfig, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"contexts": [{"name": "test", "context": {"cluster": "test", "user": "operator"}}],
		"users": [{"name": "operator", "user": {"tokenFile": %q}}],
		"clusters": [{"name": "test", "cluster": {"server": %q, "certificate-authority": %q}}]}`,
		folder+"/token", s.url, folder+"/apiserver.crt"))
	return s
}

// start starts a program that ends with the test.
func (s *apiServer) start(folder, name string, arguments ...string) *child.Child {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(folder, name), arguments...)
	var tail child.Tail
	cmd.Stderr = &tail
	running, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		running.Abort()
		if s.t.Failed() {
			s.t.Logf("%s: %s", name, tail.String())
		}
	})
	return running
}

func (s *apiServer) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// newKey returns a private key in PEM, with which the API server signs tokens of accounts.
func newKey(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}))
}

// trust makes the client accept the server's certificate, once the server has created it.
func (s *apiServer) trust(certificate string) bool {
	if s.client != nil {
		return true
	}
	text, err := os.ReadFile(certificate)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return false
	}
	s.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	s.t.Cleanup(s.client.CloseIdleConnections)
	return true
}

func (s *apiServer) isReady() bool {
	status, _, _ := s.do(http.MethodGet, "/readyz", nil)
	return status == http.StatusOK
}

// do sends a request, and returns the status, the warnings and the body of the response; 0: there is none.
func (s *apiServer) do(method, path string, body []byte) (status int, warnings []string, answer []byte) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, nil, nil
	}
	defer response.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, response.Header.Values("Warning"), answer
}

// resources are the names of the kinds in paths.
var resources = map[string]string{
	"Deployment": "deployments", "Job": "jobs", "Service": "services", "Secret": "secrets", "PodDisruptionBudget": "poddisruptionbudgets",
	"NetworkPolicy": "networkpolicies", "HorizontalPodAutoscaler": "horizontalpodautoscalers", "Issuer": "issuers",
	"PersistentVolumeClaim": "persistentvolumeclaims", "Certificate": "certificates",
}

// path returns the path of an item in a namespace.
func (i item) path(namespace string) string {
	base := "/apis/" + i.APIVersion
	if !strings.Contains(i.APIVersion, "/") {
		base = "/api/" + i.APIVersion
	}
	return base + "/namespaces/" + namespace + "/" + resources[i.Kind] + "/" + i.Metadata.Name
}

// apply applies an item as kubectl apply --server-side --validate=strict does. It returns the error of the server, or its warnings.
func (s *apiServer) apply(namespace string, i item) error {
	body, err := json.Marshal(i.all)
	if err != nil {
		return err
	}
	status, warnings, answer := s.do(http.MethodPatch, i.path(namespace)+"?fieldManager=test&fieldValidation=Strict&force=true", body)
	var message struct{ Message string }
	_ = json.Unmarshal(answer, &message) // an item of the success has none
	switch {
	case status != http.StatusOK && status != http.StatusCreated:
		return fmt.Errorf("status %d: %s", status, message.Message)
	case len(warnings) > 0:
		return fmt.Errorf("warnings %q", warnings)
	}
	return nil
}

// createNamespace creates a namespace that enforces the strictest standard for pods, and warns of Deployments that break it.
func (s *apiServer) createNamespace(name string) {
	s.t.Helper()
	status, _, answer := s.do(http.MethodPost, "/api/v1/namespaces", fmt.Appendf(nil, `{"metadata": {"name": %q, "labels": {
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}}`, name))
	if status != http.StatusCreated {
		s.t.Fatalf("create the namespace %s: got status %d: %s", name, status, answer)
	}
}

// defineCertificates defines the kinds of cert-manager.
func (s *apiServer) defineCertificates() {
	s.t.Helper()
	folder := openSchemas(s.t).certManager
	for _, name := range []string{"certificates", "issuers"} {
		text, err := os.ReadFile(filepath.Join(folder, "deploy/crds", "crd-"+name+".yaml"))
		var definition map[string]any
		if err = errors.Join(err, yaml.Unmarshal(text, &definition)); err != nil {
			s.t.Fatal(err)
		}
		delete(definition["metadata"].(map[string]any), "labels") // templates of cert-manager's own chart
		body, err := json.Marshal(definition)
		if err != nil {
			s.t.Fatal(err)
		}
		const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		if status, _, answer := s.do(http.MethodPost, path, body); status != http.StatusCreated {
			s.t.Fatalf("define %s: got status %d: %s", name, status, answer)
		}
		testkit.Eventually(s.t, name+" are served", func() bool {
			status, _, _ := s.do(http.MethodGet, "/apis/cert-manager.io/v1/"+name, nil)
			return status == http.StatusOK
		})
	}
}

// TestAPIServer applies every variant and the Secrets of setup to an API server, and installs, upgrades and removes the chart there
// with Helm. The server has no nodes, so no process starts.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	s.defineCertificates()
	for name := range variants {
		namespace := strings.ReplaceAll("variant-"+name, " ", "-")
		s.createNamespace(namespace)
		for _, i := range render(t, name) {
			if err := s.apply(namespace, i); err != nil {
				t.Errorf("%s: %s %s: %v", name, i.Kind, i.Metadata.Name, err)
			}
		}
	}
	s.createNamespace("secrets")
	for _, i := range printedSecrets(t) {
		if err := s.apply("secrets", i); err != nil {
			t.Errorf("Secret %s: got an error, want none", i.Metadata.Name) // the error may quote it
		}
	}
	unsafe := find(t, render(t, "default"), "Deployment", "network")
	unsafe.all["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["hostNetwork"] = true
	if err := s.apply("variant-default", unsafe); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a pod in the network of its node: got %v, want a warning", err)
	}
	unsafe.all["spec"].(map[string]any)["replica"] = 1
	if err := s.apply("variant-default", unsafe); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("an unknown member: got %v, want a refusal", err)
	}
	s.testHelm()
}

// testHelm installs, upgrades and removes the chart. It leaves out the Jobs, which would never end.
func (s *apiServer) testHelm() {
	t := s.t
	s.createNamespace("hosting")
	run := func(arguments ...string) {
		t.Helper()
		arguments = append(arguments, "--namespace", "hosting", "--no-hooks", "--kubeconfig", s.kubeconfig)
		if _, err := helm(t, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	status := func(i item) int {
		status, _, _ := s.do(http.MethodGet, i.path("hosting"), nil)
		return status
	}
	gateway := find(t, render(t, "default"), "Deployment", "gateway")
	store := find(t, render(t, "default"), "PersistentVolumeClaim", "store")
	run("install", "hosting", ".")
	if got := status(gateway); got != http.StatusOK {
		t.Errorf("after the installation: got status %d for the gateway, want 200", got)
	}
	run("upgrade", "hosting", ".", "--set", "drainDelaySeconds=40,certManager.enabled=true,gateway.autoscaling.enabled=true")
	_, _, answer := s.do(http.MethodGet, gateway.path("hosting"), nil)
	if !bytes.Contains(answer, []byte(`"terminationGracePeriodSeconds":75`)) {
		t.Errorf("after the upgrade: got another time to drain, want 75 seconds: %s", answer)
	}
	run("uninstall", "hosting")
	if got := status(gateway); got != http.StatusNotFound {
		t.Errorf("after the removal: got status %d for the gateway, want 404", got)
	}
	if got := status(store); got != http.StatusOK {
		t.Errorf("after the removal: got status %d for the store, want 200: it is kept", got)
	}
}
