package route

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Versioned is embedded in items with an ETag. Each edit raises the version.
type Versioned struct {
	Version int64 `json:"-" db:"version"`
}

func (v Versioned) etag() string { return `"` + strconv.FormatInt(v.Version, 10) + `"` }

// Tagged is a response with the ETag of an item.
type Tagged interface{ etag() string }

// Single is an item in an array, for documented responses of this form.
type Single[V Tagged] []V

func (s Single[V]) etag() string { return s[0].etag() }

// IfMatch is the header If-Match: the versions that the caller has seen.
type IfMatch struct{ header []string }

func ifMatchOf(r *http.Request) IfMatch { return IfMatch{r.Header.Values("If-Match")} }

// IsSet reports whether the request has the header.
func (m IfMatch) IsSet() bool { return len(m.header) > 0 }

// Check returns an error if the header names other versions.
func (m IfMatch) Check(version int64) error {
	if !m.IsSet() || matchesETag(m.header, (Versioned{version}).etag()) {
		return nil
	}
	return problem.New(problem.Stale, "The item has been changed since: its version is %d.", version)
}

// matchesETag reports whether a header names an ETag.
func matchesETag(header []string, etag string) bool {
	tags := strings.FieldsFunc(strings.Join(header, ","), func(c rune) bool { return c == ',' || c == ' ' || c == '\t' })
	return slices.Contains(tags, etag) || slices.Contains(tags, "*")
}

// Message is the response to a deletion.
type Message struct {
	Message string `json:"message" example:"Port speed 7 deleted." doc:"What was deleted, as a sentence for people."`
}

// Bulk is the response to a request that created many items.
type Bulk struct {
	Count int   `json:"count" example:"2" doc:"The number of items created."`
	First int64 `json:"first" example:"1" doc:"The id of the first item."`
	Last  int64 `json:"last" example:"2" doc:"The id of the last item."`
}

// Import is the response to a body of CSV.
type Import struct {
	Count     int             `json:"count" example:"2" doc:"The number of items created."`
	First     int64           `json:"first,omitempty" example:"1" doc:"The id of the first created item. Left out for a dry run."`
	Last      int64           `json:"last,omitempty" example:"2" doc:"The id of the last created item. Left out for a dry run."`
	Updated   int             `json:"updated" example:"1" doc:"The number of items changed."`
	Unchanged int             `json:"unchanged" example:"5" doc:"The number of rows with an id whose item is as the row says."`
	Refused   int             `json:"refused" example:"0" doc:"The number of rows left out because of errors. More than 0 only with partial=true."`
	Errors    []problem.Field `json:"errors" doc:"The errors of the rows that were left out."`
}
