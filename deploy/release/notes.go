package main

import (
	"fmt"
	"regexp"
	"strings"
)

// repositoryURL is where relative links of the changelog lead.
const repositoryURL = "https://github.com/ironplane/ironplane/blob/"

// extractNotes returns the section of a version in the changelog, without its heading.
func extractNotes(changelog, version string) (string, error) {
	var section strings.Builder
	found := false
	for line := range strings.Lines(changelog) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			if found {
				break
			}
			found = strings.TrimPrefix(name, "v") == version
			continue
		}
		if found {
			section.WriteString(line)
		}
	}
	text := strings.TrimSpace(section.String())
	if text == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section ## %s, or nothing in it: name the section Unreleased so", version)
	}
	return text + "\n", nil
}

// relativeLink matches a link to a file of the repository.
var relativeLink = regexp.MustCompile(`\]\(([^):#][^):]*)\)`)

// verification ends the notes.
const verification = `
## Verify the files

` + "```" + `
gpg --verify SHA256SUMS.asc SHA256SUMS
sha256sum --check --ignore-missing SHA256SUMS
` + "```" + `
`

// linkNotes returns notes whose links lead to the tagged files, with how to verify the release.
func linkNotes(notes, tag string) string {
	return relativeLink.ReplaceAllString(notes, "]("+repositoryURL+tag+"/$1)") + verification
}
