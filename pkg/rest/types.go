package rest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Ref names another item.
type Ref struct {
	ID   int64  `json:"id" db:"id" example:"3"`
	Name string `json:"name" db:"name" example:"Frankfurt 1"`
}

// RefID is a Ref in a request's body: {"id":3} or 3.
type RefID int64

// Message is the answer to a delete.
type Message struct {
	Message string `json:"message" example:"Port speed 7 deleted."`
}

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
