package problem

import (
	"mime"
	"strconv"
	"strings"
)

// The media types of responses.
const (
	MediaJSON    = "application/json"
	MediaProblem = "application/problem+json" // RFC 9457
	MediaCSV     = "text/csv"
	MediaHTML    = "text/html"
)

// quality returns how much an Accept header prefers a media type, from 0 to 1 (RFC 9110, 12.5.1). A header that names
// the type itself counts a little more than a wildcard.
func quality(accept, media string) float64 {
	kind, _, _ := strings.Cut(media, "/")
	best, found := 0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		named, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		specific := map[string]int{"*/*": 1, kind + "/*": 2, media: 3}[named]
		if specific <= best {
			continue
		}
		best, found = specific, 1
		if text, ok := parameters["q"]; ok {
			if found, err = strconv.ParseFloat(text, 64); err != nil || found < 0 || found > 1 {
				found = 0
			}
		}
		if found > 0 {
			found += float64(specific) / 1e6
		}
	}
	return found
}

// Accepts tells whether an Accept header names a type, also by a wildcard. Without the header every type is accepted.
func Accepts(accept, media string) bool { return accept == "" || quality(accept, media) > 0 }

// Prefers tells whether an Accept header prefers a type to JSON.
func Prefers(accept, media string) bool { return quality(accept, media) > quality(accept, MediaJSON) }
