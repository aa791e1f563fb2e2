package process

import (
	"context"
	"fmt"
	"strings"
)

// publicReason is what an error says with the words of our own in it alone: those of others name users, hosts and databases. The
// log has all of it.
func publicReason(err error) string {
	text := err.Error()
	for _, foreign := range foreignErrors(err) {
		text = strings.ReplaceAll(text, foreign.Error(), anonymize(foreign))
	}
	return text
}

// ownTypes are the types of errors whose words come from here. What they wrap is looked at, too.
var ownTypes = map[string]bool{
	"*errors.errorString": true, "*errors.joinError": true, "*fmt.wrapError": true, "*fmt.wrapErrors": true,
	"*problem.Error": true, "*events.RequestError": true, fmt.Sprintf("%T", context.DeadlineExceeded): true,
}

// foreignErrors are the outermost errors of other types.
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

func anonymize(err error) string {
	if refused, ok := err.(interface{ SQLState() string }); ok && refused.SQLState() != "" {
		return "the database refuses it (" + refused.SQLState() + ")"
	}
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return "it does not answer"
	}
	return "it cannot be asked; the log says why"
}
