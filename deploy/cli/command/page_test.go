package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	page          = "../../../docs/do/command-line.md"
	pageOfScripts = "../../../docs/do/scripts.md"
)

var (
	console   = regexp.MustCompile("(?s)```console\n(.*?)```")
	requestID = regexp.MustCompile(`\(request [^)]*\)`)
	itemID    = regexp.MustCompile(`\b(IP entity|IP group|Client) \d+`)
)

// TestPage runs the commands of the docs page in one shell, and compares what they print with the page.
func TestPage(t *testing.T) {
	t.Parallel()
	testCommands(t, page, 8)
}

// TestPageOfScripts does so with another page.
func TestPageOfScripts(t *testing.T) {
	t.Parallel()
	testCommands(t, pageOfScripts, 3)
}

// TestAnsible runs the page's playbook twice. The second time nothing changes.
func TestAnsible(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("ansible-playbook is not installed; Debian's package ansible-core has it")
	}
	text, err := os.ReadFile(pageOfScripts)
	if err != nil {
		t.Fatal(err)
	}
	s, folder := start(t), t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, playbook, _ := strings.Cut(string(text), "```yaml\n")
	playbook, _, _ = strings.Cut(playbook, "```")
	for name, content := range map[string]string{
		"site.yml":  playbook,
		"ironplane": "#!/bin/sh\n" + asProgram + "=1 exec '" + program + "' \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for run, want := range []string{"changed=1", "changed=0"} {
		play := exec.CommandContext(t.Context(), "ansible-playbook", "-i", "localhost,", "-c", "local", "site.yml")
		play.Dir = folder
		play.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "HOME="+folder, "ANSIBLE_NOCOLOR=1",
			"LC_ALL=C.UTF-8", "IRONPLANE_URL="+s.admin.URL, "IRONPLANE_KEY="+s.admin.Key)
		out, err := play.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), `"msg": "203.0.113.65"`) {
			t.Fatalf("run %d: got %v and\n%s\nwant %s, and the gateway", run, err, out, want)
		}
	}
}

// testCommands runs the commands of a page, which has at least so many.
func testCommands(t *testing.T, page string, least int) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("sh is not installed; Debian's package dash has it")
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := "ironplane() { " + asProgram + "=1 '" + program + "' \"$@\"; }\n"
	var want strings.Builder
	for _, block := range console.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			want.WriteString(line)
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script += "cat <<'COMMAND'\n" + line + "COMMAND\n" + command
			}
		}
	}
	shell := exec.CommandContext(t.Context(), "sh")
	shell.Stdin = strings.NewReader(script)
	shell.Env = append(os.Environ(), "IRONPLANE_URL="+s.admin.URL, "IRONPLANE_KEY="+s.admin.Key)
	output, _ := shell.CombinedOutput() // the last command's exit code is not the page's
	got := itemID.ReplaceAllString(requestID.ReplaceAllString(string(output), "(request …)"), "$1 1")
	if strings.Count(want.String(), "\n$ ") < least || got != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got, want.String())
	}
}

// TestExitCodesOfPage compares the docs page's table with the codes of the program.
func TestExitCodesOfPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exits {
		row := fmt.Sprintf("| %d | %s |", e.code, e.doc)
		if e.doc != "" && !strings.Contains(strings.ReplaceAll(string(text), "`--timeout`", "--timeout"), row) {
			t.Errorf("%s lacks the row %q", page, row)
		}
	}
}
