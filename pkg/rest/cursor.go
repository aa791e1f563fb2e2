package rest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/listing"
	"github.com/ironplane/ironplane/pkg/problem"
)

// cursor is a position in a list. Callers carry it from one page to the next.
type cursor struct {
	Bound    string          `json:"q"` // digest of the sort and the filters
	Value    json.RawMessage `json:"v,omitempty"`
	ID       int64           `json:"i"`
	Backward bool            `json:"b,omitempty"`

	value any
}

func newCursor(q *listQuery, at listing.Position, backward bool) *cursor {
	c := &cursor{Bound: bound(q.asked), ID: at.ID, Backward: backward}
	if at.Value != nil {
		if timestamp, ok := at.Value.(Timestamp); ok {
			at.Value = timestamp.Time // keeps the fraction of the second
		}
		c.Value, _ = json.Marshal(at.Value) // a string, a number or a time
	}
	return c
}

func (c *cursor) String() string {
	text, _ := json.Marshal(c) // of strings and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor parses a cursor and checks that it belongs to this sort and these filters.
func parseCursor(query url.Values, sort string, typeOf func(string) reflect.Type, invalid *problem.Fields) *cursor {
	var c cursor
	text, err := base64.RawURLEncoding.DecodeString(query.Get("cursor"))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && sort != "" && typeOf(sort) != nil {
		t := typeOf(sort)
		if t == reflect.TypeFor[Timestamp]() {
			t = reflect.TypeFor[time.Time]()
		}
		value := reflect.New(t)
		err = json.Unmarshal(c.Value, value.Interface())
		c.value = value.Elem().Interface()
	}
	if text, ok := c.value.(string); ok && strings.ContainsRune(text, 0) {
		err = errors.New("a text has the character NUL")
	}
	if err != nil {
		invalid.Add("?cursor", "invalid", "is not a cursor from a Link header")
	} else if c.Bound != bound(query) {
		invalid.Add("?cursor", "disagrees", "belongs to a list with another sort or other filters")
	}
	return &c
}

// bound returns a digest of the sort and the filters, which all cursors of a list share.
func bound(asked url.Values) string {
	query := maps.Clone(asked)
	for _, name := range []string{"cursor", "page", "per_page", "count"} {
		query.Del(name)
	}
	sum := sha256.Sum256([]byte(query.Encode()))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
