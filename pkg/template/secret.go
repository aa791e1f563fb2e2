package template

import (
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

// Mail programs make links of texts. So nothing in a template may stand where it becomes one address with a secret, or
// reads a secret and sends it elsewhere.

const (
	alone = "a secret needs white space or a line end before and after it"
	whole = `a secret can only be a whole href, as in <a href="{{…}}">, or the whole text of an element, as in <b>{{…}}</b>`
)

// findJoinedSecrets returns an error for each secret of a plain text that does not stand alone.
func findJoinedSecrets(source string, root *parse.ListNode, secrets []parse.Pos) (invalid []Error) {
	eachList(root, func(l *parse.ListNode) {
		for i, n := range l.Nodes {
			switch n := n.(type) {
			case *parse.TextNode:
				if at := strings.IndexByte(hideBrackets(string(n.Text)), '<'); at >= 0 {
					invalid = append(invalid, errorAt(source, n.Pos+parse.Pos(at),
						"a text with a secret needs the closing > on the same line: mail programs read what stands between < and > as one address"))
				}
			case *parse.ActionNode:
				if slices.Contains(secrets, n.Pos) && !(isSpaceAt(l, root, i-1, -1) && isSpaceAt(l, root, i+1, 0)) {
					invalid = append(invalid, errorAt(source, n.Pos, alone))
				}
			}
		}
	})
	return invalid
}

var brackets = regexp.MustCompile(`<[^<>\r\n]*>`)

// hideBrackets replaces what stands between < and > on one line.
func hideBrackets(text string) string {
	return brackets.ReplaceAllStringFunc(text, func(found string) string { return strings.Repeat(" ", len(found)) })
}

// isSpaceAt tells whether node i of a list is a text with white space at this byte; -1 is the last one. Beyond the whole
// template there is nothing, which counts as white space, too.
func isSpaceAt(l, root *parse.ListNode, i, at int) bool {
	if i < 0 || i >= len(l.Nodes) {
		return l == root
	}
	n, ok := l.Nodes[i].(*parse.TextNode)
	if !ok || len(n.Text) == 0 {
		return false
	}
	if at < 0 {
		at = len(n.Text) - 1
	}
	return strings.IndexByte(" \t\r\n", n.Text[at]) >= 0
}

// eachList calls a function for a list and all lists within it.
func eachList(l *parse.ListNode, do func(*parse.ListNode)) {
	if l == nil {
		return
	}
	do(l)
	for _, n := range l.Nodes {
		var branch *parse.BranchNode
		switch n := n.(type) {
		case *parse.IfNode:
			branch = &n.BranchNode
		case *parse.WithNode:
			branch = &n.BranchNode
		case *parse.RangeNode:
			branch = &n.BranchNode
		default:
			continue
		}
		eachList(branch.List, do)
		eachList(branch.ElseList, do)
	}
}

// findMisplacedSecrets returns the errors of an escaped HTML template that shows secrets. Its tags must be plain and
// complete within their block, so that this check, html/template and every mail program read them alike.
func findMisplacedSecrets(source string, root *parse.ListNode, secrets []parse.Pos) (invalid []Error) {
	if len(secrets) == 0 {
		return nil
	}
	eachList(root, func(l *parse.ListNode) {
		m := markup{source: source, isRoot: l == root}
		m.flatten(l, secrets)
		m.scan()
		invalid = append(invalid, m.invalid...)
	})
	return invalid
}

// The characters that stand for an action, for one that shows a secret and for a block.
const (
	valueMark  = '\x01'
	secretMark = '\x02'
	blockMark  = '\x03'
	marks      = "\x01\x02\x03"
)

var (
	// textEscapers and linkEscapers are the functions that html/template appends to a value in text, and at the
	// beginning of a link's address.
	textEscapers = []string{"_html_template_htmlescaper"}
	linkEscapers = []string{"_html_template_urlfilter", "_html_template_urlnormalizer", "_html_template_attrescaper"}
)

// escapers returns the functions that were appended to an action's value.
func escapers(n *parse.ActionNode) (all []string) {
	for _, command := range n.Pipe.Cmds[1:] {
		all = append(all, command.String())
	}
	return all
}

// flatten writes a list of nodes as one text, with a mark for each action and each block.
func (m *markup) flatten(l *parse.ListNode, secrets []parse.Pos) {
	add := func(n parse.Node, text string) {
		m.starts = append(m.starts, start{len(m.text), n.Position()})
		m.text += text
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			if i := strings.IndexAny(string(n.Text), marks); i >= 0 {
				m.invalid = append(m.invalid, errorAt(m.source, n.Pos+parse.Pos(i), "a template that shows a secret cannot have control characters"))
				n = &parse.TextNode{Pos: n.Pos}
			}
			add(n, string(n.Text))
		case *parse.ActionNode:
			switch isSecret := slices.Contains(secrets, n.Pos); {
			case isSecret && slices.Equal(escapers(n), textEscapers):
				m.inText = append(m.inText, len(m.text))
				add(n, string(secretMark))
			case isSecret && slices.Equal(escapers(n), linkEscapers):
				add(n, string(secretMark))
			case isSecret:
				m.invalid = append(m.invalid, errorAt(m.source, n.Pos, whole))
			case len(n.Pipe.Decl) == 0:
				add(n, string(valueMark))
			}
		default:
			add(n, string(blockMark))
		}
	}
}
