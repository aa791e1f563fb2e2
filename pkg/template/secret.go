package template

import (
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

var (
	// beginsLink matches the text before a link's address in quotes.
	beginsLink = regexp.MustCompile(`(?i)<a(\s[^<>]*)?\shref\s*=\s*(["'])$`)
	// textEscapers and linkEscapers are the functions that html/template appends to a value in text, and at the
	// beginning of a link's address.
	textEscapers = []string{"_html_template_htmlescaper"}
	linkEscapers = []string{"_html_template_urlfilter", "_html_template_urlnormalizer", "_html_template_attrescaper"}
)

// findMisplacedSecrets returns an error for each secret of an escaped template that is neither text nor the whole
// address of a link.
func findMisplacedSecrets(source string, root *parse.ListNode, secrets []parse.Pos) (invalid []Error) {
	var walk func(*parse.ListNode)
	walk = func(l *parse.ListNode) {
		if l == nil {
			return
		}
		for i, n := range l.Nodes {
			switch n := n.(type) {
			case *parse.IfNode:
				walk(n.List)
				walk(n.ElseList)
			case *parse.WithNode:
				walk(n.List)
				walk(n.ElseList)
			case *parse.RangeNode:
				walk(n.List)
				walk(n.ElseList)
			case *parse.ActionNode:
				if slices.Contains(secrets, n.Pos) && !isText(n) && !isLink(l.Nodes, i) {
					invalid = append(invalid, errorAt(source, n.Pos, `a secret can only be text, or the address in <a href="{{…}}">`))
				}
			}
		}
	}
	walk(root)
	return invalid
}

// escapers returns the functions that were appended to an action's value.
func escapers(n *parse.ActionNode) (all []string) {
	for _, command := range n.Pipe.Cmds[1:] {
		all = append(all, command.String())
	}
	return all
}

func isText(n *parse.ActionNode) bool { return slices.Equal(escapers(n), textEscapers) }

// isLink tells whether a node is the whole address of a link.
func isLink(nodes []parse.Node, i int) bool {
	if !slices.Equal(escapers(nodes[i].(*parse.ActionNode)), linkEscapers) || i == 0 || i == len(nodes)-1 {
		return false
	}
	before, isText := nodes[i-1].(*parse.TextNode)
	after, isTextToo := nodes[i+1].(*parse.TextNode)
	if !isText || !isTextToo {
		return false
	}
	begins := beginsLink.FindSubmatch(before.Text)
	return begins != nil && strings.HasPrefix(string(after.Text), string(begins[2]))
}
