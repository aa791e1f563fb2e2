// Package secret holds values that must not be shown: a type that neither prints nor marshals what it holds.
package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const hidden = "[secret]"

// String is a password, a key or a token on its way through the program. Formatting, logging and marshalling it
// give "[secret]"; only Reveal gives the value.
type String struct {
	value string
	read  *func() (string, error) // it again; nil: it stays
}

// New takes a value into hiding. It stays, unless there is a way to read it again: that is done whenever it is revealed, and
// where it fails, the value holds.
func New(value string, reread ...func() (string, error)) String {
	if len(reread) == 0 {
		return String{value: value}
	}
	return String{value, &reread[0]}
}

// Reveal is the value itself. Each call is a place to look at when asking where secrets go.
func (s String) Reveal() string {
	if s.read != nil {
		if now, err := (*s.read)(); err == nil && now != "" {
			return now
		}
	}
	return s.value
}

// IsZero tells whether there is no value.
func (s String) IsZero() bool { return s.value == "" }

// Equal compares in constant time.
func (s String) Equal(other String) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// Format hides the value under every verb; a String method would leave it to %d.
func (String) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(hidden)) }
func (String) LogValue() slog.Value         { return slog.StringValue(hidden) }
func (String) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// UnmarshalText takes the value from a request's body.
func (s *String) UnmarshalText(text []byte) error {
	*s = New(string(text))
	return nil
}
