package pgerror

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// tlsRefused is the text of a server without TLS.
const tlsRefused = "server refused TLS connection"

// connectError is an error with another text.
type connectError struct {
	error
	text string
}

func (e connectError) Error() string { return e.text }
func (e connectError) Unwrap() error { return e.error }

// ExplainConnect returns the error of an attempt to connect without what says nothing. Unless the URL demands TLS, a server
// without it is asked again without encryption. The error of that second attempt is the cause.
func ExplainConnect(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	joined, ok := failed.Unwrap().(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	text := err.Error()
	for _, attempt := range joined.Unwrap() {
		if line := attempt.Error(); strings.Contains(line, tlsRefused) && len(joined.Unwrap()) > 1 {
			text = strings.Replace(text, "\n\t"+line, "", 1)
		}
	}
	return connectError{err, strings.Replace(text, ":\n\t", ": ", 1)}
}
