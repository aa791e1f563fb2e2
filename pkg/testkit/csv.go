package testkit

import (
	"encoding/csv"
	"strings"
	"testing"
)

// WithoutIDs returns a CSV list without its column id. Its rows create items, and do not edit those of the list.
func WithoutIDs(t testing.TB, list string) string {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(strings.ReplaceAll(list, "\r\n", "\r\r\n"))).ReadAll() // which reads \r\n as \n
	if err != nil || records[0][0] != "id" {
		t.Fatalf("got %q (%v), want a list whose first column is id", list, err)
	}
	for i := range records {
		records[i] = records[i][1:]
	}
	var out strings.Builder
	if err := csv.NewWriter(&out).WriteAll(records); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
