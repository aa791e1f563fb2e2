package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// ask gets an internal path of a service and decodes the answer. The error is errAway where the service cannot be
// reached or cannot tell.
func (g *Gateway) ask(ctx context.Context, service, path string, into any) (err error) {
	upstream, ok := g.upstreams[service]
	if !ok {
		return fmt.Errorf("ask %s: there is no such service", service)
	}
	r, err := http.NewRequestWithContext(vouch(ctx), http.MethodGet, path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", service, err)
	}
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if gaveUp := recover(); gaveUp != nil { // the ways of an upstream to abort an answer; nobody else is there to recover
			err = fmt.Errorf("ask %s: it gave up (%v): %w", service, gaveUp, errAway)
		}
	}()
	upstream.ServeHTTP(answer, r)
	if answer.status >= http.StatusInternalServerError {
		return fmt.Errorf("ask %s: it answered %d: %w", service, answer.status, errAway)
	}
	if answer.status != http.StatusOK {
		return fmt.Errorf("ask %s: it answered %d", service, answer.status)
	}
	if err := json.Unmarshal(answer.body.Bytes(), into); err != nil {
		return fmt.Errorf("ask %s: decode the answer: %w", service, err)
	}
	return nil
}

// answer is the response to a question of the gateway's own.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// longestAnswer is in bytes. The longest is the API document of a service.
const longestAnswer = 8 << 20

var errTooLong = errors.New("the answer is too long")

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(p []byte) (int, error) {
	if a.body.Len()+len(p) > longestAnswer {
		return 0, errTooLong
	}
	return a.body.Write(p)
}
