package template_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/template"
)

type site struct {
	Site struct {
		Name string `doc:"the installation's"`
		URL  string
	}
}

type letter struct {
	To      struct{ Name, Email string }
	Link    secret.String
	Expires time.Time
	Changes []change
	Tags    []string
	Count   int64
	Urgent  bool
}

type change struct{ Title, Before string }

var language = template.NewLanguage(map[string]template.Function{
	"upper": {Do: strings.ToUpper},
}, site{}, letter{})

func variables() []any {
	var s site
	s.Site.Name, s.Site.URL = "Example & Co", "https://example.com/?a=1&b=2"
	l := letter{
		Link:    secret.New("https://example.com/reset#token=abc"),
		Expires: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC),
		Count:   3,
		Urgent:  true,
		Changes: []change{{"email", "a@example.com"}, {"<b>", ""}},
		Tags:    []string{"x", "y"},
	}
	l.To.Name, l.To.Email = "Ben <b>Miller</b>", "ben@example.com"
	return []any{s, l}
}

func TestText(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"":                                     "",
		"plain {{/* comment */}}text":          "plain text",
		"{{.To.Name}} at {{.Site.Name}}":       "Ben <b>Miller</b> at Example & Co",
		"{{.Link}}":                            "https://example.com/reset#token=abc",
		"{{.Expires}}":                         "2027-01-02 03:04 UTC",
		`{{date "02.01.2006" .Expires}}`:       "02.01.2027",
		`{{.Expires | date "15:04"}}`:          "03:04",
		"{{range .Changes}}{{.Title}},{{end}}": "email,<b>,",
		"{{range $i, $c := .Changes}}{{if $i}}; {{end}}{{$c.Title}}" +
			"{{with .Before}} was {{.}}{{end}}{{else}}none{{end}}": "email was a@example.com; <b>",
		"{{range .Tags}}{{if eq . \"y\"}}{{break}}{{end}}{{.}} of {{$.To.Email}}{{end}}": "x of ben@example.com",
		"{{$n := .Count}}{{if and (gt $n 2) .Urgent}}many{{end}}{{$n = 1}}{{$n}}":        "many1",
		"{{upper .To.Email}} {{.To.Email | upper}} {{len .Tags}} " +
			"{{not .Urgent}} {{ne .Count 3}}": "BEN@EXAMPLE.COM BEN@EXAMPLE.COM 2 false false",
		"{{with $x := .To}}{{$x.Name}}{{end}} {{(.To).Email}}": "Ben <b>Miller</b> ben@example.com",
		"{{or .Site.Name \"x\"}} {{`raw }} text`}}{{\"}}\"}}":  "Example & Co raw }} text}}",
	} {
		parsed, invalid := language.Text(source)
		if len(invalid) > 0 {
			t.Errorf("%s: got the errors %v, want none", source, invalid)
			continue
		}
		if got, err := parsed.Render(true, variables()...); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", source, got, err, want)
		}
	}
}

func TestHTML(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"<p>{{.To.Name}}</p>":                     "<p>Ben &lt;b&gt;Miller&lt;/b&gt;</p>",
		`<a href="{{.Link}}">{{.Link}}</a>`:       `<a href="https://example.com/reset#token=abc">https://example.com/reset#token=abc</a>`,
		`<A class='x' HREF='{{.Link}}' id=y>`:     `<A class='x' HREF='https://example.com/reset#token=abc' id=y>`,
		`<a href="{{.Site.URL}}&x={{.To.Name}}">`: `<a href="https://example.com/?a=1&amp;b=2&x=Ben%20%3cb%3eMiller%3c/b%3e">`,
		`<script>x({{.To.Name}})</script>`:        `<script>x("Ben \u003cb\u003eMiller\u003c/b\u003e")</script>`,
		`{{if .Urgent}}<p>{{.Link}}</p>{{end}}`:   "<p>https://example.com/reset#token=abc</p>",
	} {
		parsed, invalid := language.HTML(source)
		if len(invalid) > 0 {
			t.Errorf("%s: got the errors %v, want none", source, invalid)
			continue
		}
		if got, err := parsed.Render(true, variables()...); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", source, got, err, want)
		}
	}
}

// Secrets are rendered as a mark, unless they are to be revealed.
func TestSecretsAreMarked(t *testing.T) {
	t.Parallel()
	text, _ := language.Text("Open {{.Link}}.")
	html, _ := language.HTML(`<a href="{{.Link}}">open</a> <b>{{.Link}}</b>`)
	for _, parsed := range []*template.Template{text, html} {
		got, err := parsed.Render(false, variables()...)
		if err != nil || strings.Contains(got, "token") || !strings.Contains(got, "[secret]") {
			t.Errorf("got %q, %v, want [secret] for the secret", got, err)
		}
	}
}

// All errors of a template are reported at once, each with its position.
func TestErrorPositions(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"a\nü {{.To.Nam}}": "line 2, column 8: there is no .To.Nam: there are .To.Email, .To.Name",
		"{{.Too}}": "line 1, column 3: there is no .Too: there are .Changes, .Count, .Expires, .Link, .Site, " +
			".Tags, .To, .Urgent",
		"{{.To.Name}}\n  {{if .Urgent}}\n{{.X}":     "line 3, column 1: bad character U+007D '}'",
		"x\n{{if .Urgent}}{{range .Tags}}\n{{end}}": "line 2, column 1: {{if}} has no {{end}}",
		"{{ if .Urgent }}\n{{end}}{{end}}":          "line 2, column 8: unexpected {{end}}",
		"a {{\"x}}\n{{.To.Name}}":                   "line 1, column 3: unterminated quoted string",
		"a {{.To.Name":                              "line 1, column 3: unclosed action",
		"{{$x}}":                                    "line 1, column 1: undefined variable \"$x\"",
		"{{.To}}":                                   "line 1, column 3: this is not a text: there are .To.Email, .To.Name",
		"{{.}}":                                     "line 1, column 3: this is not a text: there are .Changes",
		"{{.Changes}}":                              "line 1, column 3: this is a list",
		"{{.Changes.Title}}":                        "line 1, column 11: there is no .Changes.Title: .Changes has no members",
		"{{range .Count}}{{end}}":                   "line 1, column 9: {{range}} needs a list",
		"{{range 10000000}}{{end}}":                 "line 1, column 9: {{range}} needs a list",
		"{{upper .Count}}":                          "line 1, column 3: upper takes a text",
		"{{if eq .Count \"3\"}}{{end}}":             "line 1, column 6: eq takes two texts or two numbers",
		"{{date .To.Name .Expires}}":                "line 1, column 3: date takes how to write it",
		"{{.Expires.Year}}":                         "line 1, column 11: there is no .Expires.Year: .Expires has no members",
		"{{$y = 1}}":                                "line 1, column 3: there is no variable $y",
		"{{$y := $y}}":                              "line 1, column 9: there is no variable $y",
		"{{range $i, $x := A $i}}{{end}}":           "line 1, column 21: there is no variable $i",
		"{{.To.Name | len | upper}}":                "line 1, column 20: upper takes a text",
	} {
		_, invalid := language.Text(source)
		if len(invalid) == 0 || !strings.HasPrefix(invalid[0].Error(), want) {
			t.Errorf("%q: got %v, want %s", source, invalid, want)
		}
	}
	if _, invalid := language.Text("{{.A}}{{upper}}{{range .B}}{{.C}}{{end}}{{.D}}"); len(invalid) != 4 {
		t.Errorf("got the errors %v, want 4", invalid)
	}
}

// TestAttempts tries templates that do more than show their variables. Each is refused.
func TestAttempts(t *testing.T) {
	t.Parallel()
	loops := func(n int) string { return strings.Repeat("{{range $.Tags}}", n) + strings.Repeat("{{end}}", n) }
	doubled := `{{$x := .To.Name}}` + strings.Repeat(`{{$x = print $x $x}}`, 100) + `{{$x}}`
	for _, source := range []string{
		// files, network, processes, the environment
		`{{readFile "/etc/passwd"}}`, `{{include "x"}}`, `{{template "/etc/passwd"}}`, `{{env "HOME"}}`, `{{exec "id"}}`, `{{http "http://169.254.169.254/"}}`, `{{getHostByName "x"}}`,
		// features of Go's templates that these lack
		`{{call .To.Name}}`, `{{call .Link.Reveal}}`, `{{printf "%1000000000d" 1}}`, `{{print .}}`, `{{println .Link}}`, `{{html .Link}}`, `{{js .Link}}`, `{{urlquery .Link}}`, `{{slice .Link 0 3}}`, `{{index .Tags 0}}`, `{{index . "Link"}}`,
		// methods and other members of the variables
		`{{.Link.Reveal}}`, `{{.Link.String}}`, `{{.Link.value}}`, `{{.Expires.Location}}`, `{{.Expires.at}}`, `{{.Site.Name.Format}}`, `{{(.Link).Reveal}}`, `{{$.Link.Reveal}}`, `{{with .Link}}{{.Reveal}}{{end}}`,
		`{{.Client}}`, `{{.Other.Password}}`, `{{$.DB}}`, `{{.To.Password}}`, `{{.language}}`, `{{printf "%#v" .}}`, `{{.}}`, `{{$}}`, `{{.To}}`, `{{.Changes}}`, `{{nil}}`, `{{with $}}{{.}}{{end}}`,
		// secrets in places that do not allow them
		`{{if .Link}}x{{end}}`, `{{if eq .Link "https://example.com/reset#token=abc"}}x{{end}}`, `{{if lt .Link "m"}}x{{end}}`, `{{len .Link}}`, `{{$x := .Link}}{{$x}}`, `{{range .Link}}{{end}}`, `{{.Link | upper}}`, `{{upper .Link}}`,
		`{{with .Link}}{{.}}{{end}}`, `{{and .Urgent .Link}}`, `{{or .Link "x"}}`, `{{not .Link}}`, `{{date "2006" .Link}}`,
		// nested and endless templates
		`{{define "x"}}{{template "x"}}{{end}}`, `{{define "x"}}{{end}}`, `{{block "x" .}}{{end}}`, `{{template "template" .}}`, loops(4), loops(200), doubled,
		`{{range 1000000000}}{{end}}`, `{{$x := 1}}{{range $x = .Tags}}{{end}}`, strings.Repeat("{{if .Urgent}}", 5000) + strings.Repeat("{{end}}", 5000), `{{if ` + strings.Repeat("(", 100_000) + `.Urgent` + strings.Repeat(")", 100_000) + `}}{{end}}`,
		strings.Repeat("{{.To.Name}}", 100_000), `{{$x := "1"}}{{$x = date $x .Expires}}`, `{{.To.Name`, `{{"`, "{{`", `{{/*`, `{{'`, `{{-`, `{{`, "{{\x00}}",
	} {
		for kind, check := range map[string]func(string) (*template.Template, []template.Error){
			"text": language.Text, "HTML": language.HTML, "open": language.Open,
		} {
			if _, invalid := check(source); len(invalid) == 0 {
				t.Errorf("%s as %s: got no error, want one", source[:min(len(source), 80)], kind)
			}
		}
	}
	if _, invalid := language.Open("{{.Link}}"); len(invalid) != 1 {
		t.Errorf("a secret in an open text: got the errors %v, want 1", invalid)
	}
	for _, source := range []string{`<a href="x`, `<p title="{{if .Urgent}}">{{end}}`, `<script>`} {
		if _, invalid := language.HTML(source); len(invalid) == 0 {
			t.Errorf("%s: got no error, want one", source)
		}
	}
}

// The text of a template and the lists that it ranges over are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	long, invalid := language.Text(`{{range .Tags}}{{range $.Tags}}{{$.To.Name}}{{end}}{{end}}`)
	if len(invalid) > 0 {
		t.Fatalf("got the errors %v, want none", invalid)
	}
	vars := variables()
	l := vars[1].(letter)
	l.To.Name, l.Tags = strings.Repeat("x", 1000), make([]string, 100)
	if got, err := long.Render(true, vars[0], l); !errors.Is(err, template.ErrTooLong) || got != "" {
		t.Errorf("got %d bytes, %v, want none, %v", len(got), err, template.ErrTooLong)
	}
	l.Tags = make([]string, 101)
	if _, err := long.Render(true, vars[0], l); err == nil {
		t.Error("a list of 101 items: got no error, want one")
	}
	if _, err := long.Render(true, vars[1], vars[0]); err == nil {
		t.Error("other variables: got no error, want one")
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	var all []string
	for _, v := range language.Variables() {
		all = append(all, v.Name)
		if v.Secret != (v.Name == ".Link") || v.Name == ".Site.Name" && v.Doc != "the installation's" {
			t.Errorf("got the variable %+v, want .Link alone secret, and .Site.Name with its description", v)
		}
	}
	if got := strings.Join(
		all,
		" ",
	); got != ".Site.Name .Site.URL .To.Name .To.Email .Link .Expires .Changes[].Title .Changes[].Before .Tags[] .Count .Urgent" {
		t.Errorf("got the variables %s, want all in their order", got)
	}
}

// Every text is accepted or refused, and an accepted one can be rendered.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{{.To.Name}}", "{{range $i, $x := .Changes}}{{if eq $i 1}}{{$x.Title}}{{end}}{{else}}{{end}}", `<a href="{{.Link}}">{{date "2006" .Expires}}</a>`, "{{with .To}}{{.Name | upper}}{{end}}", "{{/* x */}}{{- `}}` -}}{{len .Tags}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		for _, check := range []func(string) (*template.Template, []template.Error){language.Text, language.MailText, language.HTML} {
			parsed, invalid := check(source)
			if len(invalid) > 0 {
				continue
			}
			if _, err := parsed.Render(true, variables()...); err != nil && !errors.Is(err, template.ErrTooLong) {
				t.Errorf("render %q: got %v, want no error or %v", source, err, template.ErrTooLong)
			}
		}
	})
}
