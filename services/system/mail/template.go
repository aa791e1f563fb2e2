// Package mail is what the system service sends by mail: from which templates, to whom, and what became of it.
package mail

import (
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/template"
)

// Site is what templates can say of the installation.
type Site struct {
	Site struct {
		Name      string `example:"Example Hosting" doc:"the setting site_name"`
		APIURL    string `example:"https://api.example.com" doc:"where the API is; empty where the processes are not told"`
		ClientURL string `example:"https://panel.example.com" doc:"where the clients' panel is"`
		AdminURL  string `example:"https://admin.example.com" doc:"where the admins' panel is"`
	}
}

// functions are what templates have besides comparisons.
var functions = map[string]template.Function{"default": template.Default}

// mailKind is what there is to know of mails of one kind.
type mailKind struct {
	language *template.Language
	sample   mail.Content
}

var kinds = func() map[string]mailKind {
	all := map[string]mailKind{}
	for _, content := range mail.Kinds {
		all[content.Kind()] = mailKind{template.NewLanguage(functions, Site{}, mail.To{}, content), template.Example(content).(mail.Content)}
	}
	return all
}()

// Kinds are the names of all kinds.
func Kinds() []string {
	all := make([]string, len(mail.Kinds))
	for i, content := range mail.Kinds {
		all[i] = content.Kind()
	}
	return all
}

// IsBuiltIn tells whether Ironplane itself sends by the template of this name.
func IsBuiltIn(name string) bool {
	_, known := kinds[name]
	return known && name != mail.ForClient{}.Kind()
}

// Source is a template as operators write it.
type Source struct {
	Kind, Subject, Text string
	HTML                string // empty: mails have no such part
}

// Template is one that was checked.
type Template struct {
	kind                mailKind
	subject, text, html *template.Template
}

// Parse checks a template. What is wrong is noted by the members of the body that it came in.
func (s Source) Parse(invalid *problem.Fields) *Template {
	t := &Template{kind: kinds[s.Kind]}
	if t.kind.language == nil {
		invalid.Add("/type", "invalid", "must be one of %s", strings.Join(Kinds(), ", "))
		return t
	}
	part := func(pointer, source string, check func(string) (*template.Template, []template.Error)) *template.Template {
		checked, errors := check(source)
		if len(errors) > 0 {
			invalid.Add(pointer, "template", "%s", template.Said(errors))
		}
		return checked
	}
	t.subject = part("/subject", s.Subject, t.kind.language.Open)
	if strings.ContainsAny(s.Subject, "\r\n") {
		invalid.Add("/subject", "invalid", "must be one line")
	}
	t.text = part("/body", s.Text, t.kind.language.Text)
	if s.HTML != "" {
		t.html = part("/html", s.HTML, t.kind.language.HTML)
	}
	return t
}

// RenderedEmail is what a mail says.
type RenderedEmail struct {
	Subject string `json:"subject" db:"subject"`
	Text    string `json:"body" db:"body" doc:"the part of plain text"`
	HTML    string `json:"html,omitempty" db:"html" doc:"the part of HTML"`
}

// Render makes a mail's parts. Secrets show as a mark, unless they are to be revealed.
func (t *Template) Render(reveal bool, site Site, to mail.To, content mail.Content) (r RenderedEmail, err error) {
	for _, part := range []struct {
		into *string
		from *template.Template
	}{{&r.Subject, t.subject}, {&r.Text, t.text}, {&r.HTML, t.html}} {
		if part.from == nil {
			continue
		}
		if *part.into, err = part.from.Render(reveal, site, to, content); err != nil {
			return r, err
		}
	}
	// A header has one line, whatever variables hold.
	r.Subject = strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, r.Subject)), " ")
	return r, nil
}

// Sample renders the mail as it would be with sample data.
func (t *Template) Sample(site Site) (RenderedEmail, error) {
	return t.Render(true, site, template.Example(mail.To{}).(mail.To), t.kind.sample)
}

// Reference is a page that says what templates can show, in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(
		"# Variables of email templates\n\nWhat the templates of each type can show. `make openapi` writes this page from the program.\n",
	)
	table := func(title string, language *template.Language) {
		fmt.Fprintf(&b, "\n## %s\n\n%s", title, language.Table("a secret: it stands as text or as a whole `href`, and nowhere else"))
	}
	table("All types", template.NewLanguage(nil, Site{}, mail.To{}))
	for _, content := range mail.Kinds {
		if own := template.NewLanguage(nil, content); len(own.Variables()) > 0 {
			table("`"+content.Kind()+"`", own)
		}
	}
	return b.String()
}
