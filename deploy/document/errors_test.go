package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestErrorTexts checks that details are sentences, and that messages of members complete a sentence about the member.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	texts, err := errorTexts("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 300 {
		t.Errorf("got %d texts, want at least 300", len(texts))
	}
	for _, text := range texts {
		first, _ := utf8.DecodeRuneInString(text.text)
		switch {
		case text.code == "" && (unicode.IsLower(first) || !strings.HasSuffix(text.text, ".") && !strings.HasSuffix(text.text, "…")):
			t.Errorf("%s: got the detail %q, want a sentence with a capital and a full stop", text.folder, text.text)
		case text.code != "" && (unicode.IsUpper(first) || strings.HasSuffix(text.text, ".")):
			t.Errorf("%s: got the message %q, want it to go on after the member's name, without a full stop", text.folder, text.text)
		}
		if wordCount := len(strings.Fields(text.text)); wordCount > 40 {
			t.Errorf("%s: got %d words, want at most 40: %s", text.folder, wordCount, text.text)
		}
	}
}

const errorForms = `package network

import "github.com/ironplane/ironplane/pkg/problem"

const code = "taken"

// check refuses a speed. It is an example.
func check(fields *problem.Fields, speed int) error {
	fields.Add("/speed", "invalid", "must be at least %d", 1)
	fields.Add("?page", code, "is " + name() + " too far")
	if speed > 5 {
		return problem.Member("/speed", "too_large", "is %.2f %% too large", 0.1)
	}
	return &problem.Error{Kind: problem.Conflict, Detail: fmt.Sprintf("Speed %d is in use.", speed)}
}

func find() error { return problem.New(http.StatusNotFound, "There is no such speed.").Because(nil) }
`

// TestReadPackage shows that every way to write an error text in the code is found.
func TestReadPackage(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "speed.go", errorForms, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	got := readPackage("services/network", []*ast.File{file}, problemStatus{"Conflict": http.StatusConflict})
	const when = "`check` refuses a speed"
	want := []errorText{
		{"services/network", http.StatusUnprocessableEntity, "invalid", "must be at least …", when},
		{"services/network", http.StatusBadRequest, "taken", "is … too far", when},
		{"services/network", http.StatusUnprocessableEntity, "too_large", "is … % too large", when},
		{"services/network", http.StatusConflict, "", "Speed … is in use.", when},
		{"services/network", http.StatusNotFound, "", "There is no such speed.", "`find`"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
