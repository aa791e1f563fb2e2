package provider

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// workspace is a folder in which tests run Terraform as people do, with the provider as a program of its own.
type workspace struct {
	t       *testing.T
	folder  string
	program string
	product *product
}

var builtProvider = sync.OnceValues(func() (string, error) {
	folder := filepath.Join(filepath.Dir(shared.product.program), "provider")
	out, err := exec.Command("go", "build", "-o", filepath.Join(folder, "terraform-provider-ironplane"), "..").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the provider: %w\n%s", err, out)
	}
	return folder, nil
})

// newWorkspace returns a folder with a configuration.
func newWorkspace(t *testing.T, p *product, config string) *workspace {
	t.Helper()
	open(t)
	provider, err := builtProvider()
	if err != nil {
		t.Fatal(err)
	}
	w := &workspace{t: t, folder: t.TempDir(), program: terraformPath(), product: p}
	w.write("cli.tfrc", fmt.Sprintf("provider_installation {\n dev_overrides { %q = %q }\n direct {}\n}\n", "ironplane/ironplane", provider))
	w.write("main.tf", "terraform {\n required_providers { ironplane = { source = \"ironplane/ironplane\" } }\n}\n"+config)
	return w
}

func (w *workspace) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workspace) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.folder, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// run runs Terraform, and returns what it prints.
func (w *workspace) run(args ...string) (string, error) { return w.command(w.program, args...) }

// command runs a program in the workspace, and returns what it prints.
func (w *workspace) command(program string, args ...string) (string, error) {
	command := exec.Command(program, args...)
	command.Dir = w.folder
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.folder, "TF_CLI_CONFIG_FILE=" + filepath.Join(w.folder, "cli.tfrc"), "TF_IN_AUTOMATION=1",
		"CHECKPOINT_DISABLE=1", "TF_CLI_ARGS_apply=-no-color", "TF_CLI_ARGS_plan=-no-color", "TF_CLI_ARGS_destroy=-no-color",
		"IRONPLANE_URL=" + w.product.URL, "IRONPLANE_KEY=" + w.product.Key,
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

// must runs Terraform, which must succeed.
func (w *workspace) must(args ...string) string {
	w.t.Helper()
	out, err := w.run(args...)
	if err != nil {
		w.t.Fatalf("terraform %v: %v\n%s", args, err, out)
	}
	return out
}

// isPlanEmpty plans, and returns whether nothing would change, and the plan.
func (w *workspace) isPlanEmpty() (bool, string) {
	w.t.Helper()
	out, err := w.run("plan", "-detailed-exitcode")
	if err == nil {
		return true, out
	}
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
		w.t.Fatalf("terraform plan: %v\n%s", err, out)
	}
	return false, out
}
