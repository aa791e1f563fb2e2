package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errorText is a text of an error body, as it is in the code.
type errorText struct {
	folder string // of the package, such as services/network
	status int    // 0 if it is not constant
	code   string // of a field's error, else empty
	text   string // with … for parts that are not constant
	when   string // the first sentence about the function that returns it
}

// problemStatus maps each kind that package problem declares to its HTTP status.
type problemStatus map[string]int

// errorTexts reads all error texts from the Go files below root, without tests.
func errorTexts(root string) ([]errorText, error) {
	packages, err := parsePackages(root, "gateway", "pkg", "services")
	if err != nil {
		return nil, err
	}
	kinds, err := readKinds(packages["pkg/problem"])
	if err != nil {
		return nil, err
	}
	var texts []errorText
	for folder, files := range packages {
		texts = append(texts, readPackage(folder, files, kinds)...)
	}
	slices.SortFunc(texts, func(a, b errorText) int {
		return cmp.Or(cmp.Compare(a.folder, b.folder), cmp.Compare(a.status, b.status), cmp.Compare(a.code, b.code),
			cmp.Compare(a.text, b.text), cmp.Compare(a.when, b.when))
	})
	return slices.Compact(texts), nil
}

// readPackage returns the error texts in the functions of one package.
func readPackage(folder string, files []*ast.File, kinds problemStatus) []errorText {
	var texts []errorText
	constants := stringConstants(files)
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			reader := &errorReader{folder: folder, when: describeFunction(function), kinds: kinds, constants: constants}
			ast.Inspect(function.Body, reader.visit)
			texts = append(texts, reader.texts...)
		}
	}
	return texts
}

// parsePackages parses the Go files of folders, without tests. It returns them by the folder of their package.
func parsePackages(root string, folders ...string) (map[string][]*ast.File, error) {
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".gen.go") {
				return err
			}
			relative, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil || strings.HasPrefix(relative, "pkg/testkit") {
				return err
			}
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			packages[relative] = append(packages[relative], file)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the error texts of %s: %w", folder, err)
		}
	}
	return packages, nil
}

// readKinds returns the statuses of problem's constants, such as Conflict Kind = http.StatusConflict.
func readKinds(files []*ast.File) (problemStatus, error) {
	kinds := problemStatus{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || nameOf(spec.Type) != "Kind" {
				return true
			}
			if status, ok := httpStatus[nameOf(spec.Values[0])]; ok {
				kinds[spec.Names[0].Name] = status
			}
			return true
		})
	}
	if len(kinds) < 10 {
		return nil, fmt.Errorf("read the kinds of errors: got %d, want at least 10", len(kinds))
	}
	return kinds, nil
}

// httpStatus maps net/http's names of statuses to numbers: StatusNotFound to 404.
var httpStatus = func() map[string]int {
	names := map[string]int{}
	for status := 400; status < 600; status++ {
		if text := http.StatusText(status); text != "" {
			names["Status"+regexp.MustCompile(`[^A-Za-z]`).ReplaceAllString(text, "")] = status
		}
	}
	names["StatusTeapot"] = http.StatusTeapot
	return names
}()

// stringConstants returns the string constants of files by name.
func stringConstants(files []*ast.File) map[string]string {
	constants := map[string]string{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, spec := range general.Specs {
				value := spec.(*ast.ValueSpec)
				for i, name := range value.Names {
					if i < len(value.Values) {
						if text, ok := literal(value.Values[i]); ok {
							constants[name.Name] = text
						}
					}
				}
			}
		}
	}
	return constants
}

// errorReader collects the error texts of one function.
type errorReader struct {
	folder, when string
	kinds        problemStatus
	constants    map[string]string
	texts        []errorText
}

// visit reads the error texts of one node. It is called for each node of a function.
func (r *errorReader) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		r.call(n)
	case *ast.CompositeLit:
		r.literal(n)
	}
	return true
}

// call reads problem.New(kind, text, …), problem.Member(pointer, code, text, …) and fields.Add(pointer, code, text, …).
func (r *errorReader) call(call *ast.CallExpr) {
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	name, ofProblem := nameOf(call.Fun), isMethod && nameOf(method.X) == "problem" || r.folder == "pkg/problem"
	switch {
	case name == "New" && ofProblem && len(call.Args) >= 2:
		r.add(r.status(call.Args[0]), "", call.Args[1])
	case name == "Member" && ofProblem && len(call.Args) >= 3:
		r.field(call.Args)
	case name == "Add" && isMethod && len(call.Args) >= 3:
		r.field(call.Args)
	}
}

// literal reads problem.Error{Kind: …, Detail: …} and problem.Field{Pointer: …, Code: …, Message: …}.
func (r *errorReader) literal(composite *ast.CompositeLit) {
	members := map[string]ast.Expr{}
	for _, element := range composite.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			members[nameOf(pair.Key)] = pair.Value
		}
	}
	switch {
	case members["Kind"] != nil && members["Detail"] != nil && nameOf(composite.Type) == "Error":
		r.add(r.status(members["Kind"]), "", members["Detail"])
	case members["Pointer"] != nil && members["Code"] != nil && members["Message"] != nil:
		r.field([]ast.Expr{members["Pointer"], members["Code"], members["Message"]})
	}
}

// field adds a field error, with the arguments pointer, code and text. Errors of query parameters are 400, others 422.
func (r *errorReader) field(args []ast.Expr) {
	code, ok := r.text(args[1])
	if !ok {
		return
	}
	status := http.StatusUnprocessableEntity
	if pointer, ok := r.text(args[0]); ok && strings.HasPrefix(pointer, "?") {
		status = http.StatusBadRequest
	}
	r.add(status, code, args[2])
}

func (r *errorReader) add(status int, code string, text ast.Expr) {
	if sentence, ok := r.text(text); ok && strings.ContainsFunc(sentence, func(c rune) bool { return c != '…' && c != ' ' }) {
		r.texts = append(r.texts, errorText{r.folder, status, code, sentence, r.when})
	}
}

// status returns the status of a kind or of a constant of net/http; 0: unknown.
func (r *errorReader) status(kind ast.Expr) int {
	name := nameOf(kind)
	return cmp.Or(r.kinds[name], httpStatus[name])
}

var formatVerb = regexp.MustCompile(`%%|%[-+#0]*[\d.*]*[a-zA-Z]`)

// replaceVerbs returns a format with … in place of its verbs.
func replaceVerbs(format string) string {
	return formatVerb.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		return "…"
	})
}

// text returns the text of a string expression, with … for parts that are not constant. It returns false if no part is
// constant.
func (r *errorReader) text(expression ast.Expr) (string, bool) {
	switch e := expression.(type) {
	case *ast.BinaryExpr:
		left, known := r.text(e.X)
		right, alsoKnown := r.text(e.Y)
		if !known {
			left = "…"
		}
		if !alsoKnown {
			right = "…"
		}
		return left + right, known || alsoKnown
	case *ast.Ident:
		text, ok := r.constants[e.Name]
		return replaceVerbs(text), ok
	case *ast.CallExpr:
		if nameOf(e.Fun) == "Sprintf" && len(e.Args) > 0 {
			return r.text(e.Args[0])
		}
	}
	text, ok := literal(expression)
	return replaceVerbs(text), ok
}

func literal(expression ast.Expr) (string, bool) {
	basic, ok := expression.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(basic.Value)
	return text, err == nil
}

// nameOf returns the last name of an expression: New of problem.New.
func nameOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// describeFunction returns the first sentence of a function's comment, or its name if it has no comment.
func describeFunction(function *ast.FuncDecl) string {
	text := strings.Join(strings.Fields(function.Doc.Text()), " ")
	if text == "" {
		return "`" + function.Name.Name + "`"
	}
	if at := strings.Index(text, ". "); at > 0 {
		text = text[:at]
	}
	return "`" + function.Name.Name + "`" + strings.TrimPrefix(strings.TrimRight(text, ".:"), function.Name.Name)
}

// errorsPage returns the page with all error texts, package by package.
func errorsPage(texts []errorText) string {
	var page strings.Builder
	page.WriteString(`# Errors

Every error is a problem (RFC 9457): ` + "`status`, `detail`" + ` for people, and ` + "`errors`" + ` with one entry a member:
` + "`pointer`, `code`" + ` for programs, ` + "`message`" + ` for people. Programs should act on status and code. Texts may change.

This page lists the texts in the code, package by package; … stands for parts that differ from case to case. A member's message
completes a sentence: "speed is required". The last column names the function that returns the error, and says what it does.

` + "`make openapi`" + ` writes this page from the code.
`)
	folder := ""
	for _, text := range texts {
		if text.folder != folder {
			folder = text.folder
			fmt.Fprintf(&page, "\n## %s\n\n| Status | Code | Text | When |\n|---|---|---|---|\n", folder)
		}
		code := ""
		if text.code != "" {
			code = "`" + text.code + "`"
		}
		status := "…"
		if text.status != 0 {
			status = strconv.Itoa(text.status)
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", status, code, cell(text.text), cell(text.when))
	}
	return page.String()
}

// cell escapes a text for a cell of a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`).Replace(text)
}
