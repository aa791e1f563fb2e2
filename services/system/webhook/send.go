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
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// answerTimeout is how long a receiver may take.
	answerTimeout = 15 * time.Second
	// maxKeptAnswer is how much of an answer is kept, and maxReadAnswer how much is read so that the connection can be used again.
	maxKeptAnswer, maxReadAnswer = 1 << 10, 16 << 10
	// Secrets have so many random bytes; those that callers bring along, of the least to the most that Standard Webhooks say.
	secretBytes, minSecret, maxSecret = 32, 24, 64
	secretPrefix                      = "whsec_"
)

// NewSecret makes a secret from random bytes.
func NewSecret(random []byte) secret.String {
	return secret.New(secretPrefix + base64.StdEncoding.EncodeToString(random))
}

var errSecret = fmt.Errorf("must be %s and then %d to %d bytes in base64", secretPrefix, minSecret, maxSecret)

// parseSecret is the key that a secret stands for.
func parseSecret(text secret.String) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text.Reveal(), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, errSecret
	}
	return key, nil
}

// outcome is what came of an attempt.
type outcome struct {
	tried       bool // it was asked, or was to be
	interrupted bool // the process ends: it is as if nobody had tried
	status      int  // 0: there was no answer
	answer      string
	reason      string // why it is not delivered
	duration    time.Duration
	retryAfter  time.Duration // how long the receiver wants to be left alone
}

func (o *outcome) delivered() bool { return o.status/100 == 2 }

// attemptDelivery delivers an event if the webhook's maker may read such events.
func (d *Dispatcher) attemptDelivery(ctx context.Context, r receiver, one *delivery, holds principal.Grants) (o outcome) {
	needed, known := requiredGrants(one.kind)
	switch missing := needed &^ holds; {
	case !known:
		o.reason = "nobody may be told of such events"
		return o
	case missing != 0:
		o.reason = "the maker of the webhook lacks " + strings.Join(missing.Names(), ", ")
		return o
	}
	postCtx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	began := time.Now()
	o = d.post(postCtx, r, one)
	o.tried, o.duration = true, time.Since(began)
	o.interrupted = ctx.Err() != nil && o.status == 0
	return o
}

func (d *Dispatcher) post(ctx context.Context, r receiver, one *delivery) (o outcome) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(one.payload))
	if err != nil {
		o.reason = "its address is none"
		return o
	}
	now, signatures := time.Now(), make([]string, len(r.keys))
	for i, key := range r.keys {
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err == nil {
			signatures[i], err = hook.Sign(one.uuid, now, []byte(one.payload))
		}
		if err != nil {
			o.reason = "it cannot be signed"
			return o
		}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Ironplane")
	request.Header.Set(standardwebhooks.HeaderWebhookID, one.uuid)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	response, err := d.client.Do(request)
	if err != nil {
		o.reason = egress.Reason(err)
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
		o.reason = errors.Join(errors.New("the answer broke off"), errors.New(egress.Reason(err))).Error()
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

// toText is what can be kept of an answer: text.
func toText(head []byte) string {
	return strings.ToValidUTF8(strings.ReplaceAll(string(head), "\x00", ""), "\uFFFD")
}
