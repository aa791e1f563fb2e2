package script

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unicode"

	"github.com/GehirnInc/crypt"
	_ "github.com/GehirnInc/crypt/sha512_crypt" // registers $6$

	"github.com/ironplane/ironplane/pkg/template"
)

// textSteps is what a function counts for that goes through a text, and cryptSteps what one does that takes milliseconds.
const (
	textSteps  = 500
	cryptSteps = 40_000
)

// functions are what templates have besides comparisons, date and len.
var functions = map[string]template.Function{
	"crypt":   {Do: crypted, Secrets: true, Hides: true, Steps: cryptSteps},
	"default": template.Default,
	"join":    {Do: func(between string, all []string) string { return strings.Join(all, between) }, Steps: textSteps},
	"json":    {Do: quotedJSON, Secrets: true, Steps: textSteps},
	"line":    {Do: line, Secrets: true, Steps: textSteps},
	"lower":   {Do: strings.ToLower, Steps: textSteps},
	"netmask": {Do: netmask, Steps: textSteps},
	"quote":   {Do: quotedShell, Secrets: true, Steps: textSteps},
	"upper":   {Do: strings.ToUpper, Steps: textSteps},
	"value":   {Do: value, Steps: textSteps},
	"xml":     {Do: escapedXML, Secrets: true, Steps: textSteps},
}

// described are the functions for who writes templates.
var described = []struct{ example, makes string }{
	{"crypt .Password", "a password's hash as installers take it (SHA-512, `$6$`), another one each time"},
	{`default "eth0" .X`, "the second text or, where it is empty, the first"},
	{`join " " .Host.Nameservers`, "a list's texts, with a text between"},
	{"json .Host.Hostname", "a text in quotes, as JSON and YAML take it"},
	{"line .Profile.Name", "a text in one line: what is no character to see becomes a blank"},
	{"lower .Host.Name", "a text in lower case"},
	{"netmask .Host.IPv4.Prefix", "the mask of a prefix: 255.255.255.0; any other text is an error"},
	{"quote .Password", "a text in quotes, as a shell takes it"},
	{"upper .Host.MAC", "a text in upper case"},
	{`value "timezone" .Variables`, "what a variable of that name has; empty where there is none"},
	{"xml .Password", "a text as it stands in XML, also in quotes"},
}

// maxPassword is how many bytes of a password are hashed at most: the time that it takes grows with them.
const maxPassword = 1024

func crypted(password string) (string, error) {
	if len(password) > maxPassword {
		return "", fmt.Errorf("a password has at most %d bytes", maxPassword)
	}
	hash, err := crypt.SHA512.New().Generate([]byte(password), []byte("$6$"+rand.Text()[:16]))
	if err != nil {
		return "", errors.New("the password cannot be hashed") // err might show a part
	}
	return hash, nil
}

func quotedJSON(text string) (string, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	err := to.Encode(text)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
}

func quotedShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func escapedXML(text string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}

func netmask(prefix string) (string, error) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return "", fmt.Errorf("%.50q is no prefix such as 192.0.2.0/24", prefix)
	}
	ones, _ := netip.AddrFromSlice(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	return ones.String(), nil
}

func value(name string, all []Variable) string {
	for _, v := range all {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}
