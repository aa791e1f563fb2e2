package template

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

// builtin are the functions of Go's templates that are allowed. The others write values in Go's form, call their
// arguments, or make texts without a bound.
var builtin = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "date"}

var (
	boolType   = reflect.TypeFor[bool]()
	intType    = reflect.TypeFor[int64]()
	stringType = reflect.TypeFor[string]()
	// mixedType is the type of results that can have several types.
	mixedType = reflect.TypeFor[any]()
	// groupType is the type of the outermost dot, which combines all structs of the language.
	groupType = reflect.TypeFor[struct{ group struct{} }]()
)

// checker walks a template as an execution would, with types in place of values. A nil type means that an error was
// already found.
type checker struct {
	language *Language
	source   string
	secrets  bool        // secrets may be shown
	shown    []parse.Pos // the actions that show a secret
	errors   []Error
	scope    []variable // the template's own variables, the innermost last
	depth    int
	calls    int // the steps of the functions in the current pipeline
}

type variable struct {
	name string
	of   reflect.Type
}

// maxErrors is how many errors are reported at once.
const maxErrors = 20

func (c *checker) add(n parse.Node, format string, args ...any) {
	if len(c.errors) < maxErrors {
		c.errors = append(c.errors, errorAt(c.source, n.Position(), format, args...))
	}
}

// check parses a template and returns the actions that show secrets, or all errors.
func (l *Language) check(source string, secrets bool) (_ *parse.Tree, shown []parse.Pos, errors []Error) {
	if len(source) > maxSource {
		return nil, nil, []Error{{1, 1, "the template is too long"}}
	}
	if pos := findTooDeep(source); pos >= 0 {
		return nil, nil, []Error{errorAt(source, parse.Pos(pos), "parentheses are nested too deeply")}
	}
	tree, others, err := parsed(source)
	if err != nil {
		return nil, nil, []Error{syntax(source, err)}
	}
	c := &checker{language: l, source: source, secrets: secrets, scope: []variable{{"$", groupType}}}
	for _, other := range others {
		c.add(other.Root, "a template cannot define others")
	}
	if steps := c.list(tree.Root, groupType); steps > maxSteps && len(c.errors) == 0 {
		c.add(tree.Root, "the template takes too long: loops are nested too deeply, or call slow functions too often")
	}
	slices.SortStableFunc(c.errors, func(a, b Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return tree, c.shown, c.errors
}

func parsed(source string) (tree *parse.Tree, others []*parse.Tree, err error) {
	tree, set := parse.New(name), map[string]*parse.Tree{}
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(source, "", "", set); err != nil {
		return nil, nil, err
	}
	for _, t := range set {
		if t != tree {
			others = append(others, t)
		}
	}
	return tree, others, nil
}

// list checks consecutive nodes, and returns how many steps they take at most.
func (c *checker) list(l *parse.ListNode, dot reflect.Type) (steps int) {
	if l == nil {
		return 0
	}
	if c.depth++; c.depth > maxDepth {
		c.add(l, "blocks are nested too deeply")
		return 0
	}
	outer := len(c.scope)
	for _, n := range l.Nodes {
		steps = min(steps+c.node(n, dot), maxSteps+1)
	}
	c.scope, c.depth = c.scope[:outer], c.depth-1
	return steps
}

// node checks a node and returns how many steps it can take at most.
func (c *checker) node(n parse.Node, dot reflect.Type) (steps int) {
	switch n := n.(type) {
	case *parse.TextNode, *parse.BreakNode, *parse.ContinueNode, *parse.CommentNode:
		return 1
	case *parse.ActionNode:
		c.action(n, dot)
		return len(n.Pipe.Cmds) + c.takeSteps()
	case *parse.IfNode:
		outer := len(c.scope)
		c.value(n.Pipe, dot)
		steps = c.takeSteps() + c.list(n.List, dot) + c.list(n.ElseList, dot)
		c.scope = c.scope[:outer]
		return steps
	case *parse.WithNode:
		outer := len(c.scope)
		of := c.value(n.Pipe, dot)
		steps = c.takeSteps() + c.list(n.List, of) + c.list(n.ElseList, dot)
		c.scope = c.scope[:outer]
		return steps
	case *parse.RangeNode:
		return c.loop(n, dot)
	default:
		c.add(n, "a template cannot have {{%s}}", strings.Fields(strings.Trim(n.String(), "{}"))[0])
		return 1
	}
}

// takeSteps returns the steps of the pipeline that was just checked, and resets their count.
func (c *checker) takeSteps() (steps int) {
	steps, c.calls = 1+c.calls, 0
	return steps
}

// loop checks a range, and multiplies its steps by maxItems, the greatest length of a list.
func (c *checker) loop(n *parse.RangeNode, dot reflect.Type) (steps int) {
	outer := len(c.scope)
	declared := n.Pipe.Decl
	of := c.commands(n.Pipe, dot)
	steps = c.takeSteps()
	var item reflect.Type
	switch {
	case of == nil:
	case of.Kind() == reflect.Slice:
		item = of.Elem()
	default:
		c.add(n.Pipe, "{{range}} needs a list")
	}
	types := []reflect.Type{item}
	if len(declared) == 2 {
		types = []reflect.Type{intType, item}
	}
	for i, v := range declared {
		if n.Pipe.IsAssign {
			c.add(v, "{{range}} must declare its variables with :=")
		}
		c.scope = append(c.scope, variable{v.Ident[0], types[i]})
	}
	steps += maxItems * c.list(n.List, item)
	c.scope = c.scope[:outer]
	return min(steps, maxSteps+1) + c.list(n.ElseList, dot)
}

// action checks an action that shows a value or declares a variable.
func (c *checker) action(n *parse.ActionNode, dot reflect.Type) {
	if len(n.Pipe.Decl) > 0 {
		c.value(n.Pipe, dot)
		return
	}
	of := c.commands(n.Pipe, dot)
	switch {
	case of == nil:
	case of == secretType && !c.secrets:
		c.add(n.Pipe, "a secret cannot stand here")
	case of == secretType:
		c.shown = append(c.shown, n.Pos)
	case of == groupType, of.Kind() == reflect.Struct && of != timeType:
		c.add(n.Pipe, "this is not a text: %s", c.members(strings.Trim(n.Pipe.String(), " "), of))
	case of.Kind() == reflect.Slice:
		c.add(n.Pipe, "this is a list: show its items with {{range}}")
	}
}

// value checks a pipeline whose value is not shown, and declares its variables.
func (c *checker) value(p *parse.PipeNode, dot reflect.Type) reflect.Type {
	of := c.commands(p, dot)
	if of == secretType {
		c.add(p, "a secret can be shown, and nothing else")
		of = nil
	}
	for _, v := range p.Decl {
		if !p.IsAssign {
			c.scope = append(c.scope, variable{v.Ident[0], of})
		} else if was := c.lookUp(v); was != nil && of != nil && was != of {
			c.add(v, "%s had a value of another type", v.Ident[0])
		}
	}
	return of
}

// lookUp returns the type of a variable of the template. The parser accepts variables that are read in their own
// declaration.
func (c *checker) lookUp(n *parse.VariableNode) reflect.Type {
	for _, v := range slices.Backward(c.scope) {
		if v.name == n.Ident[0] {
			return v.of
		}
	}
	c.add(n, "there is no variable %s", n.Ident[0])
	return nil
}

// commands checks a pipeline, in which each command gets the result of the one before as its last argument.
func (c *checker) commands(p *parse.PipeNode, dot reflect.Type) (of reflect.Type) {
	for i, command := range p.Cmds {
		var piped []reflect.Type
		if i > 0 {
			piped = []reflect.Type{of}
		}
		of = c.command(command, dot, piped)
	}
	return of
}

// command checks a command and returns the type of its result, or nil if it is invalid. piped are the results of the command
// before it.
func (c *checker) command(n *parse.CommandNode, dot reflect.Type, piped []reflect.Type) reflect.Type {
	function, ok := n.Args[0].(*parse.IdentifierNode)
	if !ok {
		if len(n.Args) > 1 || len(piped) > 0 {
			c.add(n, "%s is not a function", n.Args[0])
			return nil
		}
		return c.argument(n.Args[0], dot)
	}
	args := make([]reflect.Type, 0, len(n.Args))
	for _, arg := range n.Args[1:] {
		args = append(args, c.argument(arg, dot))
	}
	args = append(args, piped...)
	if slices.Contains(args, nil) {
		return c.resultType(function.Ident)
	}
	if !slices.Contains(args, secretType) {
		return c.call(n, function.Ident, args)
	}
	if !c.language.functions[function.Ident].Secrets {
		c.add(n, "a secret can be shown, and nothing else")
		return c.resultType(function.Ident)
	}
	for i, of := range args {
		if of == secretType {
			args[i] = stringType
		}
	}
	c.call(n, function.Ident, args)
	return secretType
}

// argument checks a value that is not a call, except one in parentheses.
func (c *checker) argument(n parse.Node, dot reflect.Type) reflect.Type {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return c.fields(n, dot, "", n.Ident)
	case *parse.VariableNode:
		return c.fields(n, c.lookUp(n), n.Ident[0], n.Ident[1:])
	case *parse.ChainNode:
		return c.fields(n, c.argument(n.Node, dot), n.Node.String(), n.Field)
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			c.add(n, "a variable cannot be declared here")
			return nil
		}
		return c.commands(n, dot)
	case *parse.IdentifierNode:
		return c.call(n, n.Ident, nil)
	case *parse.StringNode:
		return stringType
	case *parse.BoolNode:
		return boolType
	case *parse.NumberNode:
		if n.IsInt && !strings.ContainsFunc(n.Text, func(r rune) bool { return r != '-' && (r < '0' || r > '9') }) { // not '0', 0x1 or 1e3
			return intType
		}
	}
	c.add(n, "%s is not a value", n)
	return nil
}

// fields returns the type of a member at a path.
func (c *checker) fields(n parse.Node, of reflect.Type, prefix string, path []string) reflect.Type {
	for _, name := range path {
		if of == nil {
			return nil
		}
		next := c.field(of, name)
		if next == nil {
			c.add(n, "there is no %s.%s: %s", prefix, name, c.members(prefix, of))
			return nil
		}
		of, prefix = next, prefix+"."+name
	}
	return of
}

func (c *checker) structs(of reflect.Type) []reflect.Type {
	switch {
	case of == groupType:
		return c.language.variables
	case of == secretType, of == timeType, of.Kind() != reflect.Struct:
		return nil
	default:
		return []reflect.Type{of}
	}
}

func (c *checker) field(of reflect.Type, name string) reflect.Type {
	for _, t := range c.structs(of) {
		if f, ok := t.FieldByName(name); ok {
			return f.Type
		}
	}
	return nil
}

// members describes a value's members.
func (c *checker) members(prefix string, of reflect.Type) string {
	if all := memberNames(strings.TrimSuffix(prefix, "."), c.structs(of)...); all != "" {
		return "there are " + all
	}
	return strings.TrimSpace(prefix+" ") + " has no members"
}

var parserError = regexp.MustCompile(`(?s)^template: ` + name + `:(\d+):(?:\d+:)? ?(.*)$`)
