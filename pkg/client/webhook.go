package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// webhookTolerance is how far the time of a webhook's request may be from now.
const webhookTolerance = 5 * time.Minute

// ErrSignature means that a webhook's request was not signed with the secret, or too long ago.
var ErrSignature = errors.New("the webhook's signature is not valid")

// Event is a change that a webhook's request tells of.
type Event struct {
	WebhookEvent
	// ID is the same in each attempt and replay: skip an event whose id you have seen.
	ID string
}

// ReadEvent verifies a webhook's request and returns its event. The body is the request's, byte for byte. The secret is that of
// the webhook, and begins with whsec_.
func ReadEvent(secret string, header http.Header, body []byte) (*Event, error) {
	return readEvent(secret, header, body, time.Now())
}

func readEvent(secret string, header http.Header, body []byte, now time.Time) (*Event, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return nil, errors.New("the webhook's secret is not base64")
	}
	id, sentAt := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(sentAt, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > webhookTolerance {
		return nil, fmt.Errorf("%w: the request was not sent within %s of now", ErrSignature, webhookTolerance)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, sentAt, body)
	if !hasSignature(header.Get("Webhook-Signature"), mac.Sum(nil)) {
		return nil, ErrSignature
	}
	event := Event{ID: id}
	if err := json.Unmarshal(body, &event.WebhookEvent); err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	return &event, nil
}

// hasSignature reports whether a list of signatures has this one. While a secret is replaced, there are two.
func hasSignature(list string, want []byte) bool {
	for signature := range strings.FieldsSeq(list) {
		got, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signature, "v1,"))
		if err == nil && strings.HasPrefix(signature, "v1,") && hmac.Equal(got, want) {
			return true
		}
	}
	return false
}
