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

// inflate makes the request's body read as what it is without compression. All limits, and the fingerprint of an Idempotency-Key,
// apply to the inflated body, and no service learns that the body was compressed.
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
		return problem.New(
			problem.UnsupportedMedia,
			"The Content-Encoding of the body is not supported. Send the body with gzip, or without compression.",
		)
	}
	return nil
}

// inflatedBody inflates a compressed body as it is read.
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
		err = problem.New(problem.BadRequest, "The body is incomplete or not valid gzip, although its Content-Encoding is gzip.").Because(err)
	}
	return n, err
}
