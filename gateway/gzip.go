package gateway

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// inflate has a compressed body read as what it says: all limits are of that, and nobody behind the gateway, the
// fingerprint of an Idempotency-Key included, hears that it was compressed.
func inflate(r *http.Request, header http.Header) error {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(r.Header["Content-Encoding"], ",")))
	if r.ContentLength == 0 {
		return nil
	}
	switch coding {
	case "", "identity":
	case "gzip", "x-gzip":
		r.Body, r.ContentLength = &inflatedBody{ReadCloser: r.Body}, -1
	default:
		header["Accept-Encoding"] = []string{"gzip"}
		return problem.New(problem.UnsupportedMedia, "Of the codings of a body, gzip alone is understood.")
	}
	return nil
}

// inflatedBody is a body that is read from a compressed one.
type inflatedBody struct {
	io.ReadCloser
	reader *gzip.Reader // nil before the first read
}

func (i *inflatedBody) Read(p []byte) (n int, err error) {
	if i.reader == nil {
		i.reader, err = gzip.NewReader(i.ReadCloser)
	}
	if err == nil {
		n, err = i.reader.Read(p)
	}
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	if corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = problem.New(problem.BadRequest, "The body is not whole or not gzip, which Content-Encoding says it is.").Because(err)
	}
	return n, err
}
