package process

import (
	"context"
	"fmt"
	"strings"
)

// publicReason returns the error's text without the texts of foreign errors, which may name users, hosts and databases. The
// log has the whole text.
func publicReason(err error) string {
	text := err.Error()
	for _, foreign := range foreignErrors(err) {
		text = strings.ReplaceAll(text, foreign.Error(), anonymize(foreign))
	}
	return text
}

// ownTypes are the types of errors whose text this project writes. The errors that they wrap are examined, too.
var ownTypes = map[string]bool{
	"*errors.errorString": true, "*errors.joinError": true, "*fmt.wrapError": true, "*fmt.wrapErrors": true,
	"*problem.Error": true, "*events.RequestError": true, fmt.Sprintf("%T", context.DeadlineExceeded): true,
}

// foreignErrors returns the outermost wrapped errors of other types.
func foreignErrors(err error) (all []error) {
	if err == nil {
		return nil
	}
	if !ownTypes[fmt.Sprintf("%T", err)] {
		return []error{err}
	}
	switch wrapping := err.(type) {
	case interface{ Unwrap() error }:
		all = foreignErrors(wrapping.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range wrapping.Unwrap() {
			all = append(all, foreignErrors(one)...)
		}
	}
	return all
}

// anonymize returns a text for a foreign error that reveals no names.
func anonymize(err error) string {
	if refused, ok := err.(interface{ SQLState() string }); ok && refused.SQLState() != "" {
		return "the database refused it (" + refused.SQLState() + ")"
	}
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return "no answer in time"
	}
	return "request failed, see the log"
}
