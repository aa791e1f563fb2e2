package body

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// RefID is a Ref in a request's body: {"id":3} or 3.
type RefID int64

// RefOrName is a reference in a request's body that may be a name instead: {"id":3}, 3 or "cpu". Its column holds the name.
type RefOrName string

// ID is the id where there is one, and no name. A text of digits is an id.
func (r RefOrName) ID() (id int64, ok bool) {
	text, ok := strings.CutPrefix(string(r), byID)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}

// byID stands before an id. No text that is sent has it.
const byID = "\x00"

// Timestamp is a moment, to the second: {"iso_8601":"2026-11-20T10:00:00Z","unix":1795168800}.
type Timestamp struct{ time.Time }

type timestampJSON struct {
	ISO  string `json:"iso_8601"`
	Unix int64  `json:"unix"`
}

// MarshalJSON writes the documented shape.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(timestampJSON{t.UTC().Format(time.RFC3339), t.Unix()})
}

// UnmarshalJSON reads the documented shape.
func (t *Timestamp) UnmarshalJSON(text []byte) error {
	var parts timestampJSON
	if err := json.Unmarshal(text, &parts); err != nil {
		return fmt.Errorf("read a timestamp: %w", err)
	}
	t.Time = time.Unix(parts.Unix, 0).UTC()
	return nil
}

// ScanTimestamptz reads the type from Postgres.
func (t *Timestamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	if !v.Valid {
		return fmt.Errorf("read a timestamp: it is NULL")
	}
	t.Time = v.Time.UTC()
	return nil
}

// TimestamptzValue writes the type to Postgres.
func (t Timestamp) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: t.Time, Valid: true}, nil
}
