package testkit

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var codeBlock = regexp.MustCompile("(?ms)^( *)```sh ([a-z ]+)\n(.*?)^ *```")

// CodeBlock returns the text of the block ```sh <name> in a document.
func CodeBlock(t testing.TB, document, name string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		if found[2] == name {
			return strings.ReplaceAll("\n"+found[3], "\n"+found[1], "\n")
		}
	}
	t.Fatalf("%s has no block %q", document, name)
	return ""
}
