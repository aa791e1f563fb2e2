package media

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// The constants of tus 1.0, a protocol for resumable uploads: https://tus.io/protocols/resumable-upload
const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,expiration,termination"
	tusMedia      = "application/offset+octet-stream"
	maxMetadata   = 4096 // characters of Upload-Metadata
)

// checkTusVersion writes the supported version of tus to the response, and returns an error if the request has another
// one.
func (s *Uploads) checkTusVersion(c *rest.RawCall) error {
	h := c.Writer.Header()
	h.Set("Tus-Resumable", tusVersion)
	if c.Request.Header.Get("Tus-Resumable") == tusVersion {
		return nil
	}
	h.Set("Tus-Version", tusVersion)
	h.Set("Tus-Extension", tusExtensions)
	h.Set("Tus-Max-Size", strconv.FormatInt(s.maxSize(), 10))
	return problem.New(problem.Stale, "The header Tus-Resumable must be %s.", tusVersion)
}

// parseByteCount parses a header that is a number of bytes.
func parseByteCount(r *http.Request, header string) (int64, error) {
	n, err := strconv.ParseInt(r.Header.Get(header), 10, 64)
	if err != nil || n < 0 {
		return 0, problem.New(problem.BadRequest, "%s must be a number of bytes.", header)
	}
	return n, nil
}

// isMetadata reports whether a text is a valid Upload-Metadata, such as: name dmlydGlv,is_public
func isMetadata(text string) bool {
	if len(text) > maxMetadata {
		return false
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), " ")
		_, err := base64.StdEncoding.DecodeString(value)
		if text != "" && name == "" || err != nil || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return false
		}
	}
	return true
}

// writeExpiry writes the time at which the upload expires to the response.
func (u *fileUpload) writeExpiry(c *rest.RawCall) {
	c.Writer.Header().Set("Upload-Expires", u.expires.UTC().Format(http.TimeFormat))
}
