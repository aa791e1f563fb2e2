package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"

	"github.com/ironplane/ironplane/pkg/settings"
)

// pageHead is a page up to the site's name, which its title and its heading show.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="referrer" content="no-referrer">
  <style>` + pageStyle + `</style>
  <title>`

const pageStyle = `body{font:1rem/1.5 system-ui,sans-serif;margin:3rem 1rem}main{max-width:24rem;margin:auto}label,input,button{display:block;width:100%;box-sizing:border-box;font:inherit}input,button{margin-bottom:1rem;padding:.5rem}`

// pagePolicy returns the policy of a page with this script. No page may frame it.
func pagePolicy(script string) string {
	return fmt.Sprintf(
		"default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
			"require-trusted-types-for 'script'",
		hashSource(script),
		hashSource(pageStyle),
	)
}

// hashSource returns the source expression of a script or style for a Content-Security-Policy.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// writePage writes a page with this policy: its head, the site's name, and the rest.
func (g *Gateway) writePage(w http.ResponseWriter, policy, body string) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Type", "text/html; charset=utf-8")
	name := html.EscapeString(settings.SiteName.In(g.settings.Values()))
	_, _ = io.WriteString(w, pageHead+name+"</title>\n</head>\n<body>\n  <main>\n    <h1>"+name+body)
}
