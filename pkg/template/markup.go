package template

import (
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
)

// markup is one block of an HTML template that shows secrets.
type markup struct {
	source string
	isRoot bool // the block is the whole template
	text   string
	starts []start
	inText []int // where html/template found a secret in text
	// unspaced is true if text without white space at its end stands before the present place.
	unspaced bool
	invalid  []Error
}

// start is where a node begins in the text of a block and in the source.
type start struct {
	at  int
	pos parse.Pos
}

var (
	doctype    = regexp.MustCompile(`(?i)^<!doctype[^<>` + marks + `]*>`)
	endTag     = regexp.MustCompile(`^</([a-zA-Z][a-zA-Z0-9]*)\s*>`)
	attribute  = `\s+([a-zA-Z][a-zA-Z:-]*)(?:\s*=\s*(?:"([^"<>` + "\x03" + `]*)"|'([^'<>` + "\x03" + `]*)'|([a-zA-Z0-9#%._-]+)))?`
	attributes = regexp.MustCompile(attribute)
	openingTag = regexp.MustCompile(`^<([a-zA-Z][a-zA-Z0-9]*)((?:` + attribute + `)*)\s*/?>`)
	// safeAddress matches the beginning of an address that runs no script.
	safeAddress = regexp.MustCompile(`^(https?://|mailto:|tel:|cid:|#|[` + "\x01\x02" + `])`)
)

var (
	// outerElements hold no text of their own. blockElements and inlineElements may hold a secret.
	outerElements = strings.Fields(`html head title meta body table thead tbody tfoot tr col colgroup ul ol dl img br hr`)
	blockElements = strings.Fields(`address blockquote caption center dd div dt h1 h2 h3 h4 h5 h6 li p pre td th`)
	inlineElement = strings.Fields(`a abbr b big cite code em font i kbd mark q s samp small span strong sub sup tt u`)
	// allowedAttributes load nothing by themselves, except for src, and send nothing.
	allowedAttributes = strings.Fields(`align alt aria-hidden aria-label bgcolor border cellpadding cellspacing charset class color colspan
		content dir face height href http-equiv id lang name rel role rowspan size src style summary target title valign width xmlns
		xml:lang xmlns:o xmlns:v`)
	metaEquivalents = []string{"content-type", "x-ua-compatible"}
)

func (m *markup) add(at int, format string, args ...any) {
	if len(m.invalid) >= maxErrors {
		return
	}
	var node start
	for _, s := range m.starts {
		if s.at <= at {
			node = s
		}
	}
	m.invalid = append(m.invalid, errorAt(m.source, node.pos+parse.Pos(at-node.at), format, args...))
}

// scan checks the tags of the block, and what stands between them.
func (m *markup) scan() {
	opened := "" // the element that the tag before the text opens
	m.unspaced = !m.isRoot
	for at := 0; at < len(m.text); {
		rest := m.text[at:]
		if i := strings.IndexByte(rest, '<'); i != 0 {
			if i < 0 {
				i = len(rest)
			}
			m.checkText(at, rest[:i], opened, rest[i:])
			at, opened = at+i, ""
			continue
		}
		name, length := "", 0
		if found := openingTag.FindStringSubmatch(rest); found != nil {
			name, length = strings.ToLower(found[1]), len(found[0])
			m.checkAttributes(at, name, found[2])
			opened = name
		} else if found := endTag.FindStringSubmatch(rest); found != nil {
			name, length = strings.ToLower(found[1]), len(found[0])
			opened = ""
		} else if found := doctype.FindString(rest); found != "" {
			length = len(found)
		} else {
			m.add(at, "a template that shows a secret needs each tag complete in one block, with quoted values and without blocks inside the tag")
			return
		}
		isBlock := slices.Contains(outerElements, name) || slices.Contains(blockElements, name)
		if name != "" && !isBlock && !slices.Contains(inlineElement, name) {
			m.add(at, "a template that shows a secret cannot have <%s>", name)
		}
		m.unspaced = m.unspaced && !isBlock
		at += length
	}
}

// checkText checks the text between two tags.
func (m *markup) checkText(at int, text, opened, next string) {
	if i := strings.IndexByte(text, secretMark); i >= 0 {
		ending := endTag.FindStringSubmatch(next)
		switch {
		case strings.TrimSpace(text) != string(secretMark), ending == nil, !strings.EqualFold(ending[1], opened),
			slices.Contains(outerElements, opened), !slices.Contains(m.inText, at+i):
			m.add(at+i, whole)
		case m.unspaced:
			m.add(at+i, "an element with a secret needs white space or a line end before it")
		}
	}
	if last := text[len(text)-1]; strings.IndexByte(" \t\r\n", last) < 0 {
		m.unspaced = true
	} else {
		m.unspaced = false
	}
}

// checkAttributes checks the attributes of an element.
func (m *markup) checkAttributes(at int, element, text string) {
	for _, found := range attributes.FindAllStringSubmatch(text, -1) {
		name, value := strings.ToLower(found[1]), found[2]+found[3]+found[4]
		switch {
		case !slices.Contains(allowedAttributes, name), name == "src" && element != "img", name == "href" && element != "a":
			m.add(at, "a template that shows a secret cannot have the attribute %s in <%s>", name, element)
		case name == "http-equiv" && !slices.Contains(metaEquivalents, strings.ToLower(value)):
			m.add(at, "a template that shows a secret cannot have http-equiv=%.40q", value)
		case strings.ContainsRune(value, secretMark) && (name != "href" || value != string(secretMark)):
			m.add(at, whole)
		case (name == "href" || name == "src") && !safeAddress.MatchString(value):
			m.add(at, "%s must begin with https://, http://, mailto:, tel:, cid: or # here, or be a variable", name)
		}
	}
}
