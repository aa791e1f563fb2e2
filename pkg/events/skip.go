package events

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Span names consecutive changes of a source for one of a service's consumers, or one message of the source. As text:
// pxe:17, pxe:17-20, pxe/webhooks:17 or pxe:8f14e45f-ceea-467f-a0e6-b3f7f2b1c9d4
type Span struct {
	Source      string
	Consumer    string // its Name
	First, Last int64
	Message     string // its id
}

var messageID = regexp.MustCompile("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

// UnmarshalText reads a span; an empty text is the zero Span.
func (s *Span) UnmarshalText(text []byte) error {
	if *s = (Span{}); len(text) == 0 {
		return nil
	}
	source, numbers, _ := strings.Cut(string(text), ":")
	if messageID.MatchString(numbers) && source != "" {
		*s = Span{Source: source, Message: numbers}
		return nil
	}
	source, consumer, _ := strings.Cut(source, "/")
	from, to, several := strings.Cut(numbers, "-")
	if !several {
		to = from
	}
	first, err := strconv.ParseInt(from, 10, 64)
	last, lastErr := strconv.ParseInt(to, 10, 64)
	if source == "" || err != nil || lastErr != nil || first < 1 || last < first {
		return errors.New(
			"must be <service>:<number of the change>, <service>:<first number>-<last number>, one of these with " +
				"<service>/<consumer>, or <service>:<id of its message>",
		)
	}
	*s = Span{Source: source, Consumer: consumer, First: first, Last: last}
	return nil
}

func (s Span) String() string {
	consumer := fullName(s.Source, s.Consumer)
	if s.Message != "" {
		return consumer + ":" + s.Message
	}
	if s.First == s.Last {
		return fmt.Sprintf("%s:%d", consumer, s.Last)
	}
	return fmt.Sprintf("%s:%d-%d", consumer, s.First, s.Last)
}

// Target returns the span as the audit log names it: by its last change.
func (s Span) Target() pg.Target {
	return pg.Target{Type: "event/" + s.Source, Noun: s.Source, ID: s.Last, Name: s.String()}
}
