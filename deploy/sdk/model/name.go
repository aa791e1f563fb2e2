package model

import (
	"slices"
	"strings"
	"unicode"
)

// initialisms are written in capitals in Go names.
var initialisms = strings.Fields(`acme api arp cidr cpu csv dhcp dns html http https id ip ipv4 ipv6 iso ispec json mac os pxe ram sftp
	smtp ssh ssl sso tftp tls totp ttl uid uri url utc uuid vlan xml`)

// GoName returns the Go name of a member: BillingID for billing_id.
func GoName(name string) string {
	var b strings.Builder
	for _, word := range Words(name) {
		if lower := strings.ToLower(word); slices.Contains(initialisms, lower) {
			b.WriteString(strings.ToUpper(word))
		} else if before, ok := strings.CutSuffix(lower, "s"); ok && slices.Contains(initialisms, before) {
			b.WriteString(strings.ToUpper(before) + "s")
		} else {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// Words splits a name of any spelling into its words: billing_id, serversCount and IPEntity have two each.
func Words(name string) (words []string) {
	runes := []rune(name)
	begin := 0
	end := func(i int) {
		if i > begin {
			words = append(words, string(runes[begin:i]))
		}
	}
	for i, c := range runes {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			end(i)
			begin = i + 1
		case unicode.IsUpper(c) && i > begin && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end(i)
			begin = i
		}
	}
	end(len(runes))
	return words
}

// Slug returns a name in lower case with hyphens: ip-entity for IPEntity.
func Slug(name string) string {
	return strings.ToLower(strings.Join(Words(name), "-"))
}
