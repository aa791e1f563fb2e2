package devservers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoPostgres is the error if this machine has no Postgres server to start.
var ErrNoPostgres = errors.New("no Postgres server is installed: install one" +
	" (Debian: `make setup` or `apt-get install postgresql`;" +
	" Fedora: `dnf install postgresql-server postgresql-contrib`;" +
	" macOS: `brew install postgresql@17`) or set DATABASE_URL to one that runs elsewhere")

// installation is a Postgres server on this machine.
type installation struct {
	bin   string // folder of postgres and initdb
	major string // as in a data folder's PG_VERSION
}

var binFolders = []string{
	"/usr/lib/postgresql/*/bin",         // Debian
	"/usr/pgsql-*/bin",                  // the Postgres project's packages for Fedora and its kin
	"/usr/bin",                          // Fedora
	"/usr/lib64/pgsql/*/bin",            // Fedora, the version before
	"/usr/libexec/postgresql*",          // Alpine
	"/opt/homebrew/opt/postgresql*/bin", // macOS on ARM
	"/usr/local/opt/postgresql*/bin",    // macOS on Intel
	"/usr/local/pgsql/bin",              // built from source
}

// usualBins returns the folders that may contain Postgres, the preferred one first.
func usualBins(ctx context.Context) []string {
	var bins []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil { // initdb is beside the real one
			bins = append(bins, filepath.Dir(path))
		}
	}
	if out, err := output(ctx, "pg_config", "--bindir"); err == nil {
		bins = append(bins, strings.TrimSpace(out))
	}
	for _, pattern := range binFolders {
		found, _ := filepath.Glob(pattern) // errs for a bad pattern only
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
		bins = append(bins, found...)
	}
	return bins
}

var number = regexp.MustCompile(`\d+(\.\d+)?`)

func versionIn(path string) float64 {
	all := number.FindAllString(path, -1)
	if len(all) == 0 {
		return 0
	}
	v, _ := strconv.ParseFloat(all[len(all)-1], 64) // cannot fail: the expression allows numbers only
	return v
}

// findPostgres returns the first installation in bins for a data folder of this major version. For a new folder, major is
// "", and it returns the first installation.
func findPostgres(ctx context.Context, bins []string, major string) (installation, error) {
	var others []string
	var failed error
	for _, bin := range bins {
		if !executable(filepath.Join(bin, "postgres")) || !executable(filepath.Join(bin, "initdb")) {
			continue
		}
		i := installation{bin: bin}
		var err error
		if i.major, err = majorVersion(ctx, filepath.Join(bin, "postgres")); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if major == "" || major == i.major {
			return i, nil
		}
		if other := fmt.Sprintf("%s (%s)", i.major, bin); !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	switch {
	case ctx.Err() != nil:
		return installation{}, fmt.Errorf("look for a Postgres server: %w", ctx.Err())
	case len(others) > 0:
		return installation{}, fmt.Errorf("the data was created by Postgres %s, but this machine has Postgres %s:"+
			" install Postgres %s beside it (its bin folder first in PATH if it is in no usual place),"+
			" or dump the data with its Postgres, move the folder away, start again and restore the dump",
			major, strings.Join(others, ", "), major)
	case failed != nil:
		return installation{}, fmt.Errorf("%w; an installation was found but does not run: %w", ErrNoPostgres, failed)
	default:
		return installation{}, ErrNoPostgres
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

var serverVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func majorVersion(ctx context.Context, postgres string) (string, error) {
	out, err := output(ctx, postgres, "--version")
	if err != nil {
		return "", err
	}
	m := serverVersion.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s --version says %q", postgres, out)
	}
	return m[1], nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = childEnv
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}
