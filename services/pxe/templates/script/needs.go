package script

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

// FindRequired returns the names of the variables that a template uses without a default, in ascending order. A template whose
// condition asks for a variable does without it.
func FindRequired(source string) []string {
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(source, "", "", map[string]*parse.Tree{}); err != nil {
		return nil // a template that cannot be parsed has its own error
	}
	f := requiredFinder{required: map[string]bool{}, known: map[string]int{}}
	f.list(tree.Root)
	return slices.Sorted(maps.Keys(f.required))
}

// requiredFinder collects the variables that a template uses without a default.
type requiredFinder struct {
	required map[string]bool
	known    map[string]int // how many of the conditions around the present node ask for a variable
}

func (f *requiredFinder) list(nodes *parse.ListNode) {
	if nodes == nil {
		return
	}
	for _, node := range nodes.Nodes {
		switch n := node.(type) {
		case *parse.ActionNode:
			f.pipe(nil, n.Pipe, len(n.Pipe.Decl) > 0)
		case *parse.IfNode:
			f.branch(&n.BranchNode)
		case *parse.WithNode:
			f.branch(&n.BranchNode)
		case *parse.RangeNode:
			f.branch(&n.BranchNode)
		}
	}
}

// branch reads a block. The variables of its condition exist within its list.
func (f *requiredFinder) branch(n *parse.BranchNode) {
	asked := f.pipe(nil, n.Pipe, true)
	for _, name := range asked {
		f.known[name]++
	}
	f.list(n.List)
	for _, name := range asked {
		f.known[name]--
	}
	f.list(n.ElseList)
}

// pipe reads a pipeline and appends the variables in it to asked. They are required unless the pipeline is optional, or has a
// default.
func (f *requiredFinder) pipe(asked []string, p *parse.PipeNode, optional bool) []string {
	for _, command := range p.Cmds {
		optional = optional || isCall(command, "default")
	}
	for _, command := range p.Cmds {
		if name, ok := valueName(command); ok {
			asked = append(asked, name)
			if !optional && f.known[name] == 0 {
				f.required[name] = true
			}
		}
		for _, argument := range command.Args {
			if inner, ok := argument.(*parse.PipeNode); ok {
				asked = f.pipe(asked, inner, optional)
			}
		}
	}
	return asked
}

// isCall reports whether a command calls a function.
func isCall(command *parse.CommandNode, function string) bool {
	name, ok := command.Args[0].(*parse.IdentifierNode)
	return ok && name.Ident == function
}

// valueName returns the name of the variable whose value a command returns.
func valueName(command *parse.CommandNode) (string, bool) {
	if !isCall(command, "value") || len(command.Args) < 2 {
		return "", false
	}
	name, ok := command.Args[1].(*parse.StringNode)
	if !ok {
		return "", false
	}
	return name.Text, true
}

var (
	iPXEVariable = regexp.MustCompile(`\$\{([A-Za-z0-9_.:/-]+)\}`)
	iPXELoad     = regexp.MustCompile(`^(kernel|initrd|module|chain|imgfetch|imgload|imgselect|imgexec|boot)\s`)
)

// maxExpanded is how many bytes the variables of a boot script can add to it. A variable may double itself on each line.
const maxExpanded = 1 << 20

// FindFiles returns the paths of the files that a rendered boot script loads from the file server with this base URL. It skips
// addresses with settings of the firmware, and those that the script has an alternative for.
func FindFiles(bootScript, base string) (paths []string) {
	variables, left := map[string]string{}, maxExpanded
	expand := func(text string) string {
		return iPXEVariable.ReplaceAllStringFunc(text, func(reference string) string {
			value, ok := variables[reference[2:len(reference)-1]]
			if !ok || len(value) > left {
				return reference
			}
			left -= len(value)
			return value
		})
	}
	for line := range strings.Lines(bootScript) {
		line = strings.TrimSpace(line)
		if assignment, ok := strings.CutPrefix(line, "set "); ok {
			name, value, _ := strings.Cut(strings.TrimSpace(assignment), " ")
			variables[name] = expand(value)
			continue
		}
		command, alternative, _ := strings.Cut(line, "||")
		if !iPXELoad.MatchString(line) || iPXELoad.MatchString(strings.TrimSpace(alternative)+" ") || strings.Contains(command, "&&") {
			continue
		}
		for word := range strings.FieldsSeq(expand(command)) {
			_, rest, found := strings.Cut(word, base+"/")
			if path, _, _ := strings.Cut(rest, "?"); found && path != "" && !strings.ContainsAny(path, "${}") && !slices.Contains(paths, path) {
				paths = append(paths, strings.TrimSuffix(path, "/"))
			}
		}
	}
	return paths
}
