package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestOptionalMembers(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]EntityUpdate{
		`{}`:                               {},
		`{"nickname":null}`:                {Nickname: Null[string]()},
		`{"nickname":"","vlan":0}`:         {Nickname: Set(""), VLAN: Int(0)},
		`{"owner":{"id":4,"server":null}}`: {Owner: Set(EntityUpdateOwner{ID: Int(4), Server: Null[EntityUpdateOwnerServer]()})},
	} {
		text, err := json.Marshal(change)
		if err != nil || string(text) != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
		var read EntityUpdate
		if err := json.Unmarshal(text, &read); err != nil || read != change {
			t.Errorf("got %+v, %v, want %+v", read, err, change)
		}
	}
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	want := At(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	for _, text := range []string{`{"iso_8601":"2026-11-20T10:00:00Z","unix":1795168800}`, `{"unix":1795168800}`} {
		var read Timestamp
		if err := json.Unmarshal([]byte(text), &read); err != nil || !read.Equal(want.Time) {
			t.Errorf("%s: got %v, %v, want %v", text, read, err, want)
		}
	}
	if text, _ := json.Marshal(want); string(text) != `{"iso_8601":"2026-11-20T10:00:00Z","unix":1795168800}` {
		t.Errorf("got %s, want both forms", text)
	}
}

func TestErrorsNameExistingItems(t *testing.T) {
	t.Parallel()
	refusal := respond(422, "", `{"status":422,"detail":"1 member is invalid.","request_id":"R1","errors":[{"pointer":"/address",
		"code":"overlaps","message":"overlaps with IP entity 1","existing":{"id":1,"name":"rack 12"}}]}`)
	c, _ := testClient(t, answers(refusal))
	_, err := c.Entities.Create(t.Context(), EntityCreate{})
	e, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict) {
		t.Fatalf("got %v, want an invalid member", err)
	}
	if f := e.Field("/address"); f == nil || f.Code != "overlaps" || *f.Existing != (Ref{1, "rack 12"}) {
		t.Errorf("got %+v, want what is in the way of /address", f)
	}
	if e.Field("/name") != nil {
		t.Error("got an error of /name, want none")
	}
	if want := "422 Unprocessable Entity: /address overlaps with IP entity 1 (request R1)"; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
}

func TestReadEvent(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_168_800, 0)
	key := []byte("a key of at least 24 bytes")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	body := `{"type":"group.edited","timestamp":"2026-11-20T10:00:00Z","data":{}}`
	sign := func(id string, at time.Time, body string) string {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	for name, test := range map[string]struct {
		secret, signature, body string
		at                      time.Time
		valid                   bool
	}{
		"good":                 {secret, sign("m1", now, body), body, now, true},
		"a second signature":   {secret, "v1,AAAA v1a,x " + sign("m1", now, body), body, now, true},
		"another body":         {secret, sign("m1", now, body), body + " ", now, false},
		"another secret":       {"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", sign("m1", now, body), body, now, false},
		"another id":           {secret, sign("m2", now, body), body, now, false},
		"no signature":         {secret, "", body, now, false},
		"another version":      {secret, "v2," + sign("m1", now, body)[3:], body, now, false},
		"an old request":       {secret, sign("m1", now.Add(-6*time.Minute), body), body, now.Add(-6 * time.Minute), false},
		"a request to come":    {secret, sign("m1", now.Add(6*time.Minute), body), body, now.Add(6 * time.Minute), false},
		"a secret of nothing":  {"whsec_", sign("m1", now, body), body, now, false},
		"a secret not base 64": {"x!", sign("m1", now, body), body, now, false},
	} {
		header := http.Header{"Webhook-Id": {"m1"}, "Webhook-Timestamp": {fmt.Sprint(test.at.Unix())}, "Webhook-Signature": {test.signature}}
		event, err := readEvent(test.secret, header, []byte(test.body), now)
		if (err == nil) != test.valid {
			t.Errorf("%s: got %v, want it valid: %t", name, err, test.valid)
		}
		if err == nil && (event.ID != "m1" || event.Type != "group.edited") {
			t.Errorf("%s: got %+v, want the event", name, event)
		}
	}
}
