package provider

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/ironplane/ironplane/pkg/client"
)

// testTimeout is a generous limit for one step on a busy machine.
const testTimeout = 5 * time.Minute

// product is a standalone process, as users run it, with a data folder of its own.
type product struct {
	program, folder, URL, Key string

	command *exec.Cmd
	screen  string // the file with what the process printed
}

var shared struct {
	sync.Once
	product *product
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if p := shared.product; p != nil {
		p.end(syscall.SIGTERM)
		_ = os.RemoveAll(filepath.Dir(p.program))
	}
	os.Exit(code)
}

// open returns a client of the product that all tests of this package share.
func open(t *testing.T) (*client.Client, *product) {
	t.Helper()
	if terraformPath() == "" {
		t.Skip("neither terraform nor tofu is installed; make tofu builds one, and TF_ACC_TERRAFORM_PATH names another")
	}
	shared.Do(func() { shared.product, shared.err = newProduct() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.product.client(t), shared.product
}

func (p *product) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(p.URL, client.WithKey(p.Key))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newEmptyProduct returns a product of one test's own, with data in a folder of this name.
func newEmptyProduct(t *testing.T, name string) *product {
	t.Helper()
	_, origin := open(t)
	p := &product{program: origin.program, folder: filepath.Join(filepath.Dir(origin.program), name), screen: origin.screen + "-" + name}
	if err := p.start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(syscall.SIGTERM) })
	return p
}

// terraformPath returns the program that tests use, or an empty text: what make tofu has built, or what is installed.
func terraformPath() string {
	if program := os.Getenv("TF_ACC_TERRAFORM_PATH"); program != "" {
		return program
	}
	if built, err := filepath.Abs("../../../bin/tofu"); err == nil {
		if _, err := os.Stat(built); err == nil {
			return built
		}
	}
	for _, name := range []string{"tofu", "terraform"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	return ""
}

func newProduct() (*product, error) {
	folder, err := os.MkdirTemp("", "ironplane-terraform")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(folder, 0o755); err != nil { // as root, PostgreSQL runs as another user
		return nil, err
	}
	p := &product{program: filepath.Join(folder, "standalone"), folder: filepath.Join(folder, "data"), screen: filepath.Join(folder, "screen")}
	build := exec.Command("go", "build", "-o", p.program, "./standalone")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build standalone: %w\n%s", err, out)
	}
	if err := p.start("127.0.0.1:0"); err != nil {
		return nil, err
	}
	settings := filepath.Join(folder, "terraformrc") // nobody's own
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		return nil, err
	}
	environment := map[string]string{
		"IRONPLANE_URL": p.URL, "IRONPLANE_KEY": p.Key,
		"TF_ACC": "1", "TF_ACC_TERRAFORM_PATH": terraformPath(), "TF_CLI_CONFIG_FILE": settings, "CHECKPOINT_DISABLE": "1",
	}
	if strings.Contains(filepath.Base(terraformPath()), "tofu") {
		environment["TF_ACC_PROVIDER_HOST"] = "registry.opentofu.org"
	}
	for name, value := range environment {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return p, nil
}

var (
	ready    = regexp.MustCompile(`Ironplane is ready at (http://[0-9a-z.]+:[0-9]+)`)
	firstKey = regexp.MustCompile(`(?m)^  (ip_\w+)$`)
)

// start starts the process, and waits until it serves.
func (p *product) start(listen string) error {
	screen, err := os.Create(p.screen)
	if err != nil {
		return err
	}
	defer screen.Close()
	p.command = exec.Command(p.program)
	p.command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "IRONPLANE_DATA=" + p.folder, "IRONPLANE_LISTEN=" + listen,
		"IRONPLANE_OWNER_RATE=1000000", "IRONPLANE_OWNER_BURST=1000000", "IRONPLANE_ALLOWED_NETWORKS=127.0.0.0/8",
	}
	p.command.Stdout, p.command.Stderr = screen, screen
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(p.screen)
		if err != nil {
			return err
		}
		url, key := ready.FindStringSubmatch(string(text)), firstKey.FindStringSubmatch(string(text))
		if url == nil || p.Key == "" && key == nil {
			continue
		}
		if p.URL = url[1]; p.Key == "" {
			p.Key = key[1]
		}
		return nil
	}
	text, _ := os.ReadFile(p.screen)
	return fmt.Errorf("got after %v\n%s\nwant a product that is ready", testTimeout, text)
}

// end sends a signal to the process, and waits until it has exited.
func (p *product) end(signal syscall.Signal) {
	_ = p.command.Process.Signal(signal)
	_ = p.command.Wait()
}

// servers are the provider for package resource.
var servers = map[string]func() (tfprotov6.ProviderServer, error){"ironplane": providerserver.NewProtocol6WithError(New())}

// TestSchemas has the framework check all schemas.
func TestSchemas(t *testing.T) {
	t.Parallel()
	server, err := servers["ironplane"]()
	if err != nil {
		t.Fatal(err)
	}
	got, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got.Diagnostics {
		t.Errorf("%s: %s", d.Summary, d.Detail)
	}
	if len(got.ResourceSchemas) < 25 || len(got.DataSourceSchemas) < len(got.ResourceSchemas) {
		t.Errorf("got %d resources and %d data sources, want at least 25", len(got.ResourceSchemas), len(got.DataSourceSchemas))
	}
	var names []string
	for name := range got.ResourceSchemas {
		names = append(names, name)
	}
	t.Log(strings.Join(names, " "))
}
