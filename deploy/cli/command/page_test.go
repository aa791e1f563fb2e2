package command

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const page = "../../../docs/do/command-line.md"

var (
	console   = regexp.MustCompile("(?s)```console\n(.*?)```")
	requestID = regexp.MustCompile(`\(request [^)]*\)`)
	itemID    = regexp.MustCompile(`\b(IP entity|IP group|Client) \d+`)
)

// TestPage runs the commands of the docs page in one shell, and compares what they print with the page.
func TestPage(t *testing.T) {
	t.Parallel()
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
	if strings.Count(want.String(), "\n$ ") < 8 || got != want.String() {
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
