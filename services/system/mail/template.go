// Package mail renders, sends and stores the mails that services ask for.
package mail

import (
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/template"
)

// Site is what templates can show of the installation.
type Site struct {
	Site struct {
		Name      string `example:"Example Hosting" doc:"The setting site_name."`
		APIURL    string `example:"https://api.example.com" doc:"The URL of the API. Empty if it is not configured."`
		ClientURL string `example:"https://panel.example.com" doc:"The URL of the client panel. Empty if it is not configured."`
		AdminURL  string `example:"https://admin.example.com" doc:"The URL of the admin panel. Empty if it is not configured."`
	}
}

// functions are the functions of templates, in addition to comparisons.
var functions = map[string]template.Function{"default": template.Default}

// mailKind is a kind of mails: the language of its templates, and sample data.
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

// Kinds returns the names of all kinds.
func Kinds() []string {
	all := make([]string, len(mail.Kinds))
	for i, content := range mail.Kinds {
		all[i] = content.Kind()
	}
	return all
}

// IsBuiltIn reports whether Ironplane itself sends mails with the template of this name.
func IsBuiltIn(name string) bool {
	_, known := kinds[name]
	return known && name != mail.ForClient{}.Kind()
}

// Source is a template as operators write it.
type Source struct {
	Kind, Subject, Text string
	HTML                string // empty: mails have no HTML part
}

// Template is a template that was checked.
type Template struct {
	kind                mailKind
	subject, text, html *template.Template
}

// Parse checks a template. It adds an error to invalid for each invalid member of the request's body.
func (s Source) Parse(invalid *problem.Fields) *Template {
	t := &Template{kind: kinds[s.Kind]}
	if t.kind.language == nil {
		invalid.Add("/type", "invalid", "must be one of %s", strings.Join(Kinds(), ", "))
		return t
	}
	part := func(pointer, source string, check func(string) (*template.Template, []template.Error)) *template.Template {
		checked, errors := check(source)
		if len(errors) > 0 {
			invalid.Add(pointer, "template", "%s", template.FormatErrors(errors))
		}
		return checked
	}
	t.subject = part("/subject", s.Subject, t.kind.language.Open)
	if strings.ContainsAny(s.Subject, "\r\n") {
		invalid.Add("/subject", "invalid", "must be one line")
	}
	t.text = part("/body", s.Text, t.kind.language.MailText)
	if s.HTML != "" {
		t.html = part("/html", s.HTML, t.kind.language.HTML)
	}
	return t
}

// RenderedEmail is the text of a mail.
type RenderedEmail struct {
	Subject string `json:"subject" db:"subject"`
	Text    string `json:"body" db:"body" doc:"The plain text part."`
	HTML    string `json:"html,omitempty" db:"html" doc:"The HTML part."`
}

// Render renders a mail's parts. Secrets are hidden unless reveal is true.
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
	// A header must be one line, even if variables contain line feeds.
	r.Subject = oneLine(r.Subject)
	return r, nil
}

// oneLine returns a text with a space for each run of white space and control characters.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)), " ")
}

// Preview renders a mail. nil stands for sample data.
func (t *Template) Preview(site Site, to *mail.To, content mail.Content) (RenderedEmail, error) {
	if to == nil {
		sample := template.Example(mail.To{}).(mail.To)
		to = &sample
	}
	if content == nil {
		content = t.kind.sample
	}
	return t.Render(true, site, *to, content)
}

// Variables returns the variables of the templates of each kind.
func Variables() map[string][]template.Variable {
	all := map[string][]template.Variable{}
	for name, kind := range kinds {
		all[name] = kind.language.Variables()
	}
	return all
}

// Reference returns the Markdown page that lists the variables of all templates.
func Reference() string {
	var b strings.Builder
	b.WriteString(
		"# Variables of email templates\n\nThe variables that templates of each type can use. `make openapi` writes this page from " +
			"the program.\n",
	)
	table := func(title string, language *template.Language) {
		fmt.Fprintf(&b, "\n## %s\n\n%s", title, language.Table("a secret: it stands alone, see [email templates](api.md#email-templates)"))
	}
	table("All types", template.NewLanguage(nil, Site{}, mail.To{}))
	for _, content := range mail.Kinds {
		if own := template.NewLanguage(nil, content); len(own.Variables()) > 0 {
			table("`"+content.Kind()+"`", own)
		}
	}
	return b.String()
}
