package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const maxSentenceWords = 30

// privateWords are words that the field does not use, with the ones that it does.
var privateWords = map[string]string{
	"afters": "after", "again": "retry", "ago": "since", "anew": "again", "annas": "the item's name", "anybody": "anyone",
	"backing": "server", "backings": "devservers", "blame": "attribute", "came": "restored", "closing": "lease", "courier": "dispatcher",
	"door": "handler", "doors": "handlers", "given": "input", "gives": "returns", "gone": "deleted", "here": "local", "highest": "max",
	"keeps": "task", "largest": "max", "linger": "timeout", "longest": "max", "lowest": "min", "made": "created", "makes": "creates",
	"mine": "own", "moment": "timestamp", "most": "max", "nobody": "none", "occasion": "event", "office": "mailer", "ours": "own",
	"papers": "documents", "patience": "timeout", "pause": "interval", "place": "slot", "places": "slots", "room": "slots",
	"said": "output", "shape": "schema", "shapes": "schemas", "shortest": "min", "somebody": "someone", "standin": "double",
	"stranger": "unauthenticated", "strangers": "unauthenticated", "taken": "used", "takes": "accepts", "tell": "notify",
	"telling": "notify", "tells": "notifies", "that": "", "theirs": "", "there": "exists", "thing": "item", "things": "items",
	"told": "notified", "took": "duration", "twin": "copy", "uses": "usage", "what": "", "which": "", "who": "", "whose": "owner",
	"wrong": "invalid",
}

// allowedNames hold a private word for a reason.
var allowedNames = map[string]string{
	"LargestFree":      "the type of largest_free_block",
	"LargestFreeBlock": "the API's member",
	"GivenKey":         "the documented API's component",
	"MakesAdmins":      "the documented API's member",
}

// pronouns and word orders of comments that should have a noun as their subject.
var unclear = regexp.MustCompile(`(?i)\b(he|him|his|himself|she|who has|of which|that which|whoever)\b`)

func TestLanguageOfCode(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"deploy", "gateway", "pkg", "services"} {
		goFiles(t, folder, func(path string, text []byte) {
			if strings.HasSuffix(path, ".gen.go") {
				return
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			report := func(at token.Pos, format string, args ...any) {
				t.Helper()
				t.Errorf("%s:%d: "+format, append([]any{path, fset.Position(at).Line}, args...)...)
			}
			for _, word := range camelWords(strings.TrimSuffix(filepath.Base(path), ".go")) {
				if field, private := privateWords[word]; private {
					report(file.Pos(), "got %q in the file's name, want a word of the field, such as %q", word, field)
				}
			}
			checkNames(file, report)
			checkComments(file, report)
			checkLogMessages(file, report)
		})
	}
}

type reporter func(at token.Pos, format string, args ...any)

// checkNames reports private words in the names that a file declares.
func checkNames(file *ast.File, report reporter) {
	check := func(names ...*ast.Ident) {
		for _, name := range names {
			if name == nil || allowedNames[name.Name] != "" {
				continue
			}
			for _, word := range camelWords(name.Name) {
				if field, private := privateWords[word]; private {
					report(name.Pos(), "%s: got the private word %q, want one of the field, such as %q", name.Name, word, field)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name)
		case *ast.TypeSpec:
			check(n.Name)
		case *ast.ValueSpec:
			check(n.Names...)
		case *ast.Field:
			check(n.Names...)
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					name, _ := e.(*ast.Ident)
					check(name)
				}
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					name, _ := e.(*ast.Ident)
					check(name)
				}
			}
		}
		return true
	})
}

// checkComments reports pronouns without a noun, and long sentences.
func checkComments(file *ast.File, report reporter) {
	for _, group := range file.Comments {
		text := group.Text()
		if found := unclear.FindString(text); found != "" {
			report(group.Pos(), "got %q in a comment, want a noun", found)
		}
		for _, sentence := range longSentences(text) {
			report(group.Pos(), "got a sentence of over %d words in a comment, want several: %s", maxSentenceWords, sentence)
		}
	}
}

// checkLogMessages reports messages of log lines that are no constants, begin with a capital or end with a full stop.
func checkLogMessages(file *ast.File, report reporter) {
	position := map[string]int{
		"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	}
	loggers := map[string]bool{"log": true, "logger": true, "Log": true, "slog": true}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at, known := position[method.Sel.Name]
		if !known || len(call.Args) <= at {
			return true
		}
		switch x := method.X.(type) {
		case *ast.Ident:
			known = loggers[x.Name]
		case *ast.SelectorExpr:
			known = loggers[x.Sel.Name]
		default:
			known = false
		}
		if !known {
			return true
		}
		literal, ok := call.Args[at].(*ast.BasicLit)
		if !ok {
			return true
		}
		message, err := strconv.Unquote(literal.Value)
		if err != nil || message == "" {
			return true
		}
		if first := rune(message[0]); unicode.IsUpper(first) && !startsWithAcronym(message) || strings.HasSuffix(message, ".") {
			report(call.Pos(), "got the log message %q, want it in lower case and without a full stop", message)
		}
		return true
	})
}

func startsWithAcronym(s string) bool { return len(s) > 1 && unicode.IsUpper(rune(s[1])) }

// camelWords returns the words of an identifier or a file's name, in lower case.
func camelWords(name string) []string {
	var words []string
	var word []rune
	letters := []rune(name)
	for i, r := range letters {
		starts := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if starts || !unicode.IsLetter(r) {
			words, word = append(words, strings.ToLower(string(word))), nil
		}
		if unicode.IsLetter(r) {
			word = append(word, r)
		}
	}
	return append(words, strings.ToLower(string(word)))
}

var (
	inlineCode  = regexp.MustCompile("`[^`]*`")
	sentenceEnd = regexp.MustCompile(`[.!?:](\s+|$)|\n\s*\n`)
)

// longSentences returns the beginnings of sentences with more than maxSentenceWords words. Indented lines, as code has
// them, end a sentence and do not count.
func longSentences(text string) (long []string) {
	var prose strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ") {
			line = "\n\n"
		}
		prose.WriteString(line)
	}
	plain := inlineCode.ReplaceAllString(prose.String(), "code")
	for _, sentence := range sentenceEnd.Split(plain, -1) {
		words := slices.DeleteFunc(strings.Fields(sentence), func(w string) bool { return !strings.ContainsFunc(w, unicode.IsLetter) })
		if len(words) > maxSentenceWords {
			long = append(long, strings.Join(words[:8], " ")+" …")
		}
	}
	return long
}

func TestCamelWords(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"maxReports": "max reports", "HTTPServer": "http server", "ipv4_door": "ipv door", "wrong": "wrong", "maxID": "max id",
	} {
		if got := strings.Join(slices.DeleteFunc(camelWords(name), func(w string) bool { return w == "" }), " "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
