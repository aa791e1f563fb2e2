package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// around is what the samples of CONTRIBUTING.md stand in.
const around = `package sample

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
)

type (
	Service struct {
		greet service.Job
		mails interface{ Send(ctx context.Context, client int64, text string) error }
	}
	greeting struct{ Client int64 }

	PortSpeed struct {
		rest.Versioned
		ID      int64
		Name    string
	}
	portSpeedBody struct{ Name string }
)

`

// The Go in CONTRIBUTING.md compiles against the packages as they are.
func TestSamplesCompile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString(around)
	samples := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(samples) < 5 {
		t.Errorf("got %d samples, want at least 5", len(samples))
	}
	for _, sample := range samples {
		text.Write(sample[1])
		text.WriteString("\n")
	}
	file := filepath.Join(t.TempDir(), "sample.go")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(folder, "sample", "sample.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "./sample").CombinedOutput(); err != nil {
		t.Errorf("the samples of CONTRIBUTING.md, in one file, do not compile: %v\n%s", err, out)
	}
}
