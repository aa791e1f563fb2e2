package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

// TestNamedArguments says that a statement with more than eight arguments names them: of numbered ones two are easily swapped
// when a column is added.
func TestNamedArguments(t *testing.T) {
	t.Parallel()
	ninth, comment := regexp.MustCompile(`\$(9|[1-9][0-9])\b`), regexp.MustCompile(`//.*`)
	for _, folder := range []string{"pkg", "services"} {
		sources(t, folder, func(path string, text []byte) {
			if found := ninth.Find(comment.ReplaceAll(text, nil)); found != nil {
				t.Errorf("%s has a statement with the argument %s: name its arguments, and give them as pgx.StrictNamedArgs", path, found)
			}
		})
	}
}

var (
	argument = regexp.MustCompile(`\$[0-9]+\b`)
	// besideNumber matches what stands around an argument that is compared or computed with a number; § is the argument.
	besideNumber = regexp.MustCompile(`§ ?(=|<>|<=|>=|<|>|\+|-|\*|/|%) ?[0-9]|\b[0-9]+ ?(=|<>|<=|>=|<|>|\+|-|\*|/|%) ?§[^:]|` +
		`(nullif|coalesce|least|greatest)\(§, ?[0-9]`)
)

// TestArgumentsBesideNumbers says that an argument whose first place is beside a number has a type of its own. PostgreSQL
// would take the number's, integer, and refuse ids beyond 2^31.
func TestArgumentsBesideNumbers(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"pkg", "services"} {
		sources(t, folder, func(path string, text []byte) {
			file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					statement, _ := strconv.Unquote(literal.Value)
					for _, name := range findUntyped(statement) {
						t.Errorf("%s has %s beside a number in %q: write %s::bigint", path, name, statement, name)
					}
				}
				return true
			})
		})
	}
	if got := findUntyped("SELECT $1 WHERE $2 > 0 AND $3::bigint < 0 AND $1 = 0 AND 0 = $4 AND nullif($5, 0) AND 1 = $6::int"); len(got) != 3 {
		t.Errorf("got %v, want $2, $4 and $5", got)
	}
}

// findUntyped returns the arguments of a statement whose first place is beside a number.
func findUntyped(statement string) (names []string) {
	seen := map[string]bool{}
	for _, at := range argument.FindAllStringIndex(statement, -1) {
		name := statement[at[0]:at[1]]
		if !seen[name] && besideNumber.MatchString(statement[:at[0]]+"§"+statement[at[1]:]+" ") {
			names = append(names, name)
		}
		seen[name] = true
	}
	return names
}
