package client

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// Opt is a member that a request may leave out. Its zero value is not sent: a change leaves the member as it is. Set, Int and Null
// make the others.
type Opt[T any] struct {
	value T
	state state
}

type state int

const (
	absent state = iota
	null
	present
)

// Set returns a member with a value.
func Set[T any](value T) Opt[T] { return Opt[T]{value, present} }

// Int returns a member with a number. It saves a conversion where Set would need one.
func Int(value int64) Opt[int64] { return Set(value) }

// Null returns a member that clears a value, or restores its default.
func Null[T any]() Opt[T] { return Opt[T]{state: null} }

// Get returns the value, and whether there is one.
func (o Opt[T]) Get() (T, bool) { return o.value, o.state == present }

// IsNull reports whether the member clears a value.
func (o Opt[T]) IsNull() bool { return o.state == null }

// IsZero reports whether the member is not sent.
func (o Opt[T]) IsZero() bool { return o.state == absent }

func (o Opt[T]) sent() (any, bool) { return o.value, o.state == present }

// MarshalJSON writes the value, or null.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if o.state == present {
		return json.Marshal(o.value)
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads a value, or null.
func (o *Opt[T]) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		*o = Null[T]()
		return nil
	}
	o.state = present
	return json.Unmarshal(text, &o.value)
}

// Timestamp is a point in time, as the API writes it.
type Timestamp struct{ time.Time }

// At returns a timestamp.
func At(t time.Time) Timestamp { return Timestamp{t} }

type timestampJSON struct {
	ISO8601 string `json:"iso_8601"`
	Unix    int64  `json:"unix"`
}

// MarshalJSON writes the time in ISO 8601 and in seconds since 1970.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(timestampJSON{t.UTC().Format(time.RFC3339Nano), t.Unix()})
}

// UnmarshalJSON reads a time in either form.
func (t *Timestamp) UnmarshalJSON(text []byte) error {
	var at timestampJSON
	if err := json.Unmarshal(text, &at); err != nil {
		return err
	}
	if at.ISO8601 == "" {
		t.Time = time.Unix(at.Unix, 0).UTC()
		return nil
	}
	parsed, err := time.Parse(time.RFC3339Nano, at.ISO8601)
	t.Time = parsed
	return err
}

// NameOrID names an item by its id or by its name. The API makes an item for an unknown name.
type NameOrID struct {
	ID   int64
	Name string
}

// MarshalJSON writes the id, or the name.
func (r NameOrID) MarshalJSON() ([]byte, error) {
	if r.ID != 0 {
		return json.Marshal(r.ID)
	}
	return json.Marshal(r.Name)
}

// UnmarshalJSON reads an id or a name.
func (r *NameOrID) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &r.ID) == nil {
		return nil
	}
	return json.Unmarshal(text, &r.Name)
}

// answered is an answer with the header of its response.
type answered[T any] struct {
	value  T
	header http.Header
}

func (a *answered[T]) setHeader(h http.Header)         { a.header = h }
func (a *answered[T]) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &a.value) }
