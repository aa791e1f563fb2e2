package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/deploy/sdk/model"
)

// writeType writes the type of a component.
func (t *types) writeType(b *bytes.Buffer, component string) {
	s, name := t.document.Components.Schemas[component], t.name(component)
	text := name + " is " + t.origins[component] + "."
	if t.changes[component] {
		text += " Members that are left out stay as they are."
	}
	comment(b, "", strings.TrimSpace(text+" "+sentence(s.Description)))
	if s.Properties == nil {
		fmt.Fprintf(b, "type %s %s\n\n", name, t.goType(s))
		return
	}
	fmt.Fprintf(b, "type %s ", name)
	t.writeStruct(b, s, component)
	b.WriteString("\n\n")
}

// writeStruct writes the members of an object, with the id and the name first.
func (t *types) writeStruct(b *bytes.Buffer, s *model.Schema, component string) {
	b.WriteString("struct {\n")
	if t.versions[component] {
		b.WriteString("\tVersioned\n")
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	used := map[string]bool{}
	for _, name := range names {
		p, required := s.Properties[name], slices.Contains(s.Required, name)
		field := model.GoName(name)
		if used[field] {
			field += "Alias"
		}
		used[field] = true
		doc := p.Description
		if inner, _ := p.Nullable(); len(inner.Enum) > 0 {
			doc = strings.TrimSpace(sentence(doc) + " One of: " + strings.Join(inner.Enum, ", ") + ".")
		}
		goType, omitted := t.memberType(p, component, required)
		comment(b, "\t", doc)
		tag := name
		if omitted {
			tag += ",omitzero"
		}
		fmt.Fprintf(b, "\t%s %s `json:%q`\n", field, goType, tag)
	}
	b.WriteString("}")
}

func rank(name string) int {
	if i := slices.Index([]string{"id", "name"}, name); i >= 0 {
		return i
	}
	return 2
}

// memberType returns the type of a member, and whether it is left out if it is zero.
func (t *types) memberType(p *model.Schema, component string, required bool) (goType string, omitted bool) {
	inner, nullable := p.Nullable()
	goType = t.goType(inner)
	isStruct := inner.Properties != nil || inner.Ref != "" && t.users[inner.RefName()] != nil
	switch {
	case required && !nullable:
		return goType, false
	case t.changes[component] || nullable:
		return "Opt[" + goType + "]", true
	case t.bodies[component] && (goType == "bool" || goType == "int64" && inner.Ref == "" && (inner.Minimum == nil || *inner.Minimum < 1)):
		return "Opt[" + goType + "]", true // zero means something
	case isStruct, goType == "Ref":
		return "*" + goType, true
	default:
		return goType, true
	}
}

// goType returns the type of a value.
func (t *types) goType(s *model.Schema) string {
	s, _ = s.Nullable()
	if s.Ref != "" {
		if name, ok := handWritten[s.RefName()]; ok {
			return name
		}
		return t.name(s.RefName())
	}
	if len(s.AnyOf) == 2 && s.AnyOf[1].RefName() == "RefBody" {
		return "NameOrID"
	}
	if len(s.Type) == 0 {
		return "json.RawMessage"
	}
	switch s.Type[0] {
	case "string":
		return "string"
	case "integer":
		return "int64"
	case "boolean":
		return "bool"
	case "array":
		return "[]" + t.goType(s.Items)
	}
	if s.Properties != nil {
		var b bytes.Buffer
		t.writeStruct(&b, s, "")
		return b.String()
	}
	if s.Additional != nil {
		return "map[string]" + t.goType(s.Additional)
	}
	return "json.RawMessage"
}

// maxComment is the length of a comment's line without its indentation.
const maxComment = 125

// comment writes a text as lines of a comment.
func comment(b *bytes.Buffer, indent, text string) {
	line := ""
	for _, word := range strings.Fields(sentence(text)) {
		if line != "" && len(line)+len(word) >= maxComment {
			fmt.Fprintf(b, "%s// %s\n", indent, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	if line != "" {
		fmt.Fprintf(b, "%s// %s\n", indent, line)
	}
}

// sentence returns a text that begins with a capital, unless that is a value, and ends with a full stop.
func sentence(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if isWord := strings.Trim(first, "abcdefghijklmnopqrstuvwxyz,") == ""; isWord && first != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if text == "" || strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
