package body

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// RefID is a reference in a body: {"id":3} or 3.
type RefID int64

// RefOrName is a reference in a body that may be a name instead: {"id":3}, 3 or "cpu". Its column has the name.
type RefOrName string

// ID returns the id, if the reference has one. A text of digits is an id.
func (r RefOrName) ID() (id int64, ok bool) {
	text, ok := strings.CutPrefix(string(r), byID)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}

// byID marks an id. Callers cannot send this character.
const byID = "\x00"

// Timestamp is a time in seconds: {"iso_8601":"2026-11-20T10:00:00Z","unix":1795168800}.
type Timestamp struct{ time.Time }

type timestampJSON struct {
	ISO  string `json:"iso_8601"`
	Unix int64  `json:"unix"`
}

// MarshalJSON writes the documented object.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(timestampJSON{t.UTC().Format(time.RFC3339), t.Unix()})
}

// UnmarshalJSON reads the documented object.
func (t *Timestamp) UnmarshalJSON(text []byte) error {
	var parts timestampJSON
	if err := json.Unmarshal(text, &parts); err != nil {
		return fmt.Errorf("read a timestamp: %w", err)
	}
	t.Time = time.Unix(parts.Unix, 0).UTC()
	return nil
}

// ScanTimestamptz reads a timestamp from Postgres.
func (t *Timestamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	if !v.Valid {
		return fmt.Errorf("read a timestamp: it is NULL")
	}
	t.Time = v.Time.UTC()
	return nil
}

// TimestamptzValue returns the timestamp for Postgres.
func (t Timestamp) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: t.Time, Valid: true}, nil
}
