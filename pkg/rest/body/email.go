package body

import (
	"regexp"
	"strings"
)

const (
	maxEmail = 254
	maxLocal = 64
)

// emailAddress matches a name and a domain of at least two parts. It leaves out addresses that mail servers give a meaning of
// their own: quoted names, IP addresses and local hosts as domains, and names with %, ! or |, which are routes or commands.
var emailAddress = regexp.MustCompile(`^[\pL\pM\pN_#$&'*+/=?^{}~-]+(\.[\pL\pM\pN_#$&'*+/=?^{}~-]+)*` +
	`@([\pL\pN]([\pL\pM\pN-]{0,61}[\pL\pM\pN])?\.)+(xn--[a-zA-Z0-9-]{1,59}|\pL[\pL\pM]{1,62})$`)

// NotEmail is the message about a text that is no email address.
const NotEmail = "must be an email address such as anna@example.com"

// IsEmail tells whether a text is an email address that mails are sent to.
func IsEmail(email string) bool {
	return len(email) <= maxEmail && strings.IndexByte(email, '@') <= maxLocal && emailAddress.MatchString(email)
}
