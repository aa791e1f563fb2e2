package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// pages returns the Markdown files that git tracks or would track, with their text.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted in the work tree
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	if len(all) < 20 {
		t.Fatalf("got %d pages, want at least 20", len(all))
	}
	return all
}

// Links between pages lead to files and headings that exist.
func TestLinksOfDocs(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for name, text := range all {
		for _, link := range markdownLink.FindAllStringSubmatch(withoutCode(text), -1) {
			target, heading, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, link[1])
				continue
			}
			if page, ok := all[path]; heading != "" && ok && !headings(page)[heading] {
				t.Errorf("%s: the link to %s leads to no heading", name, link[1])
			}
		}
	}
}

// Sentences of pages are short. Tables, code and headings do not count.
func TestSentencesOfDocs(t *testing.T) {
	t.Parallel()
	for name, text := range pages(t) {
		var prose strings.Builder
		for line := range strings.Lines(withoutCode(text)) {
			trimmed := strings.TrimLeft(line, " ")
			switch {
			case strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, ">"):
				prose.WriteString("\n\n")
			case strings.HasPrefix(trimmed, "- "), strings.HasPrefix(trimmed, "* "), listNumber.MatchString(trimmed):
				prose.WriteString("\n\n" + trimmed)
			default:
				prose.WriteString(trimmed)
			}
		}
		for _, sentence := range longSentences(prose.String()) {
			t.Errorf("%s: got a sentence of over %d words, want several: %s", name, maxSentenceWords, sentence)
		}
		if found := unclear.FindString(prose.String()); found != "" {
			t.Errorf("%s: got %q, want a noun", name, found)
		}
	}
}

var listNumber = regexp.MustCompile(`^\d+\. `)

// withoutCode returns a page without its fenced blocks.
func withoutCode(page string) string {
	var text strings.Builder
	inCode := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			text.WriteString("\n\n")
			continue
		}
		if !inCode {
			text.WriteString(line)
		}
	}
	return text.String()
}

var namedAnchor = regexp.MustCompile(`<a id="([^"]+)"></a>`)

// headings returns the anchors of a page: those that GitHub makes, and those that the page names.
func headings(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, a := range namedAnchor.FindAllStringSubmatch(page, -1) {
		anchors[a[1]] = true
	}
	for line := range strings.Lines(withoutCode(page)) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		anchors[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.TrimSpace(strings.TrimLeft(line, "#")))] = true
	}
	return anchors
}
