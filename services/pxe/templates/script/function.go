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

// textSteps is the cost of a function that reads a text, and cryptSteps that of one that takes milliseconds.
const (
	textSteps  = 500
	cryptSteps = 40_000
)

// functions are the functions of templates besides comparisons, date and len.
var functions = map[string]template.Function{
	"crypt":   {Do: hashPassword, Secrets: true, Hides: true, Steps: cryptSteps},
	"default": template.Default,
	"join":    {Do: func(between string, all []string) string { return strings.Join(all, between) }, Steps: textSteps},
	"json":    {Do: quoteJSON, Secrets: true, Steps: textSteps},
	"line":    {Do: replaceControls, Secrets: true, Steps: textSteps},
	"lower":   {Do: strings.ToLower, Steps: textSteps},
	"netmask": {Do: formatNetmask, Steps: textSteps},
	"quote":   {Do: quoteShell, Secrets: true, Steps: textSteps},
	"upper":   {Do: strings.ToUpper, Steps: textSteps},
	"value":   {Do: findValue, Steps: textSteps},
	"xml":     {Do: escapeXML, Secrets: true, Steps: textSteps},
}

// functionDocs describes the functions to authors of templates.
var functionDocs = []template.FunctionDoc{
	{Example: "crypt .Password", Result: "the SHA-512 hash (`$6$`) of a password, with a new salt each time"},
	{Example: `default "eth0" .X`, Result: "the second text, or the first if the second is empty"},
	{Example: `join " " .Host.Nameservers`, Result: "the texts of a list, joined by the first text"},
	{Example: "json .Host.Hostname", Result: "a text in quotes for JSON and YAML"},
	{Example: "line .Profile.Name", Result: "a text in one line: control characters become spaces"},
	{Example: "lower .Host.Name", Result: "a text in lower case"},
	{Example: "netmask .Host.IPv4.Prefix", Result: "the mask of a prefix: 255.255.255.0; any other text is an error"},
	{Example: "quote .Password", Result: "a text in quotes for a shell"},
	{Example: "upper .Host.MAC", Result: "a text in upper case"},
	{Example: `value "timezone" .Variables`, Result: "the value of the variable with this name; empty if there is none"},
	{Example: "xml .Password", Result: "a text escaped for XML, also within quotes"},
}

// maxPasswordSize is the maximum size in bytes of a password to hash. The time for the hash grows with the size.
const maxPasswordSize = 1024

// hashPassword returns the SHA-512 hash of a password with a random salt.
func hashPassword(password string) (string, error) {
	if len(password) > maxPasswordSize {
		return "", fmt.Errorf("a password can have at most %d bytes", maxPasswordSize)
	}
	hash, err := crypt.SHA512.New().Generate([]byte(password), []byte("$6$"+rand.Text()[:16]))
	if err != nil {
		return "", errors.New("the password cannot be hashed") // err might contain a part of it
	}
	return hash, nil
}

func quoteJSON(text string) (string, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	err := to.Encode(text)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// replaceControls replaces control characters and line separators by spaces.
func replaceControls(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
}

func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func escapeXML(text string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}

// formatNetmask returns the mask of a prefix, such as 255.255.255.0.
func formatNetmask(prefix string) (string, error) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return "", fmt.Errorf("%.50q is not a prefix such as 192.0.2.0/24", prefix)
	}
	ones, _ := netip.AddrFromSlice(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	return ones.String(), nil
}

func findValue(name string, all []Variable) string {
	for _, v := range all {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}
