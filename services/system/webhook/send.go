package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// answerTimeout limits a request to a receiver.
	answerTimeout = 15 * time.Second
	// maxKeptAnswer is how many bytes of a response are stored. maxReadAnswer is how many are read, so that the connection can
	// be reused.
	maxKeptAnswer, maxReadAnswer = 1 << 10, 16 << 10
	// Generated secrets have secretBytes random bytes. Standard Webhooks specifies the bounds for secrets of callers.
	secretBytes, minSecret, maxSecret = 32, 24, 64
	secretPrefix                      = "whsec_"
)

// NewSecret returns a secret of these random bytes.
func NewSecret(random []byte) secret.String {
	return secret.New(secretPrefix + base64.StdEncoding.EncodeToString(random))
}

var errSecret = fmt.Errorf("must be %s followed by %d to %d bytes in base64", secretPrefix, minSecret, maxSecret)

// parseSecret returns the key that a secret encodes.
func parseSecret(text secret.String) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text.Reveal(), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, errSecret
	}
	return key, nil
}

// outcome is the result of an attempt.
type outcome struct {
	tried       bool // whether the attempt counts
	interrupted bool // the process ended: the attempt does not count
	status      int  // 0: there was no response
	answer      string
	reason      string // why the delivery failed
	duration    time.Duration
	retryAfter  time.Duration // the receiver's Retry-After
}

// delivered reports whether the receiver accepted the event.
func (o *outcome) delivered() bool { return o.status/100 == 2 }

// attemptDelivery delivers an event if the webhook's owner may read such events.
func (d *Dispatcher) attemptDelivery(ctx context.Context, r receiver, one *delivery, holds principal.Grants) (o outcome) {
	needed, known := requiredGrants(one.kind)
	switch missing := needed &^ holds; {
	case !known:
		o.reason = "there are no events of this type any more"
		return o
	case missing != 0:
		o.reason = "the webhook's owner lacks " + strings.Join(missing.Names(), ", ")
		return o
	}
	postCtx, cancel := context.WithTimeout(tracing.Resume(ctx, one.traceparent), answerTimeout)
	defer cancel()
	began := time.Now()
	o = d.post(postCtx, r, one)
	o.tried, o.duration = true, time.Since(began)
	o.interrupted = ctx.Err() != nil && o.status == 0
	return o
}

// post signs an event and sends it to the receiver.
func (d *Dispatcher) post(ctx context.Context, r receiver, one *delivery) (o outcome) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(one.payload))
	if err != nil {
		o.reason = "the URL is not valid"
		return o
	}
	now, signatures := time.Now(), make([]string, len(r.keys))
	for i, key := range r.keys {
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err == nil {
			signatures[i], err = hook.Sign(one.uuid, now, []byte(one.payload))
		}
		if err != nil {
			o.reason = "the event cannot be signed"
			return o
		}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Ironplane")
	request.Header.Set(standardwebhooks.HeaderWebhookID, one.uuid)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	endSpan := tracing.Call(request, "webhook")
	defer func() { endSpan(o.status) }()
	response, err := d.client.Do(request)
	if err != nil {
		o.reason = egress.Describe(err)
		return o
	}
	defer response.Body.Close()
	head, err := io.ReadAll(io.LimitReader(response.Body, maxKeptAnswer))
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxReadAnswer))
	}
	o.status, o.answer = response.StatusCode, toText(head)
	switch {
	case err != nil && !o.delivered():
		o.reason = errors.Join(errors.New("the response was cut off"), errors.New(egress.Describe(err))).Error()
	case !o.delivered():
		o.reason = fmt.Sprintf("the receiver answered %d", o.status)
	}
	if o.status == http.StatusTooManyRequests || o.status == http.StatusServiceUnavailable {
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			o.retryAfter = min(time.Duration(min(seconds, 1<<30))*time.Second, maxRetryAfter)
		}
	}
	return o
}

// toText returns a response as text that PostgreSQL can store.
func toText(head []byte) string {
	return strings.ToValidUTF8(strings.ReplaceAll(string(head), "\x00", ""), "\uFFFD")
}
