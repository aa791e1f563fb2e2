// Package secret has a type for values that must not be shown: formatting and marshalling it hide the value.
package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const hidden = "[secret]"

// String is a password, a key or a token. Formatting, logging and marshalling it yield "[secret]"; only Reveal returns
// the value.
type String struct {
	value string
	read  *func() (string, error) // returns the current value; nil: the value never changes
}

// New returns a secret with this value. With reread, each Reveal calls it for the current value; if that fails, Reveal
// returns the first value.
func New(value string, reread ...func() (string, error)) String {
	if len(reread) == 0 {
		return String{value: value}
	}
	return String{value, &reread[0]}
}

// Reveal returns the value itself. Search for its callers to see where secrets go.
func (s String) Reveal() string {
	if s.read != nil {
		if now, err := (*s.read)(); err == nil && now != "" {
			return now
		}
	}
	return s.value
}

// IsZero tells whether the secret is empty.
func (s String) IsZero() bool { return s.value == "" }

// Equal compares two secrets in constant time.
func (s String) Equal(other String) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// Format hides the value for every verb. A String method would not hide it from %d.
func (String) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(hidden)) }
func (String) LogValue() slog.Value         { return slog.StringValue(hidden) }
func (String) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// UnmarshalText takes the value from a body.
func (s *String) UnmarshalText(text []byte) error {
	*s = New(string(text))
	return nil
}
