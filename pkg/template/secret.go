package template

import (
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

var (
	// beginsLink ends what stands before a link's address, in quotes.
	beginsLink = regexp.MustCompile(`(?i)<a(\s[^<>]*)?\shref\s*=\s*(["'])$`)
	// textEscapers and linkEscapers are what html/template puts behind a value that stands as text, and behind one that
	// begins a link's address.
	textEscapers = []string{"_html_template_htmlescaper"}
	linkEscapers = []string{"_html_template_urlfilter", "_html_template_urlnormalizer", "_html_template_attrescaper"}
)

// findMisplacedSecrets finds the secrets of an escaped template that neither stand as text nor are all of a link's address.
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
					invalid = append(invalid, errorAt(source, n.Pos, `a secret stands as text or as <a href="{{…}}">, and nowhere else`))
				}
			}
		}
	}
	walk(root)
	return invalid
}

// escapers are what was put behind an action's value.
func escapers(n *parse.ActionNode) (all []string) {
	for _, command := range n.Pipe.Cmds[1:] {
		all = append(all, command.String())
	}
	return all
}

func isText(n *parse.ActionNode) bool { return slices.Equal(escapers(n), textEscapers) }

// isLink tells whether a node is all of a link's address.
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
