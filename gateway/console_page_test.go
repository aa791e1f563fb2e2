package gateway

import (
	"net/http"
	"strings"
	"testing"
)

func TestConsolePages(t *testing.T) {
	t.Parallel()
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	on, off := newTestGateway(t, unlimited), newTestGateway(t, testConfig{Config: Config{Console: "off"}, rates: unlimited.rates})
	for name, c := range map[string]struct {
		g            *testGateway
		path, accept string
		status       int
		has          string // in the Location or the body
	}{
		"a browser at /":                      {on, "/", browser, http.StatusFound, "/-/console/"},
		"a program at /":                      {on, "/", "*/*", http.StatusNotFound, "There is no such path."},
		"a program without Accept at /":       {on, "/", "", http.StatusNotFound, "There is no such path."},
		"a browser at /, without console":     {off, "/", browser, http.StatusNotFound, "There is no such path."},
		"the console":                         {on, "/-/console/", browser, http.StatusOK, `<div id="root">`},
		"the console without a slash":         {on, "/-/console", browser, http.StatusOK, `<div id="root">`},
		"a page of the console":               {on, "/-/console/client/5", browser, http.StatusOK, `<div id="root">`},
		"a missing file":                      {on, "/-/console/assets/none.js", "*/*", http.StatusNotFound, "another version"},
		"the console, if it is off":           {off, "/-/console/", browser, http.StatusNotFound, "There is no such path."},
		"a page of the console, if it is off": {off, "/-/console/client/5", browser, http.StatusNotFound, "There is no such path."},
		"a path that begins like it":          {on, "/-/consoles", browser, http.StatusNotFound, "There is no such path."},
	} {
		r := c.g.want(c.status, "", c.path, "Accept", c.accept)
		if text := r.Header().Get("Location") + r.Body.String(); !strings.Contains(text, c.has) {
			t.Errorf("%s: got %d with %.200s, want %s", name, r.Code, text, c.has)
		}
	}
}

// TestConsoleFilesAreNotLimited loads more files at once than a network without a key may request in a second.
func TestConsoleFilesAreNotLimited(t *testing.T) {
	t.Parallel()
	limited := unlimited
	limited.AddressRate, limited.AddressBurst = 1, 1
	g := newTestGateway(t, limited)
	for range 20 {
		g.want(http.StatusOK, "", "/-/console/icon.svg")
	}
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, "on": true, "off": false} {
		var s Switch
		if err := s.UnmarshalText([]byte(text)); err != nil || s.isOn() != want {
			t.Errorf("%q: got %t and the error %v, want %t", text, s.isOn(), err, want)
		}
	}
	var s Switch
	if err := s.UnmarshalText([]byte("no")); err == nil {
		t.Errorf("got no error for no, want one that names on and off")
	}
}
