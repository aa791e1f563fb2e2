package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

// contentRange matches the Content-Range header of a partial response, such as: bytes 0-99/200
var contentRange = regexp.MustCompile(`^bytes (\d+)-\d+/(\d+|\*)$`)

// download fetches the missing rest of the ISO.
func (i *isoImport) download(ctx context.Context, d *storage.Draft) error {
	if d.Size > 0 && i.validator == "" && i.wantSHA256 == nil { // without either, a changed file would go unnoticed
		restarted, err := i.restart(ctx, d)
		if err != nil {
			return err
		}
		*d = *restarted
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errSilent := fmt.Errorf("the server sent nothing for %s", i.SilenceTimeout)
	timer := time.AfterFunc(i.SilenceTimeout, func() { stop(errSilent) })
	defer timer.Stop()
	response, err := i.request(ctx, d)
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			return errSilent
		}
		return err
	}
	defer response.Body.Close()
	whole, err := i.checkResponse(response, d)
	if errors.Is(err, errChanged) {
		var restarted *storage.Draft
		if restarted, err = i.restart(ctx, d); err == nil {
			*d = *restarted
			whole, err = i.checkResponse(response, d)
		}
	}
	if err != nil {
		return err
	}
	if whole > i.maxSize {
		return i.tooLarge()
	}
	validator := response.Header.Get("ETag")
	if validator == "" || validator[0] != '"' { // a weak ETag cannot be used with If-Range
		validator = response.Header.Get("Last-Modified")
	}
	if d.Size == 0 {
		if err := i.update(ctx, "validator = nullif($3, ''), expected = nullif($4, -1), error = NULL", validator, whole); err != nil {
			return err
		}
	}
	err = d.Append(ctx, &silenceReader{response.Body, timer, i.SilenceTimeout}, i.maxSize)
	switch {
	case errors.Is(err, storage.ErrTooLarge):
		return i.tooLarge()
	case errors.Is(err, storage.ErrConcurrentWrite):
		return errSuperseded
	case err != nil && errors.Is(context.Cause(ctx), errSilent):
		return errSilent
	case errors.Is(err, io.ErrUnexpectedEOF) && whole >= 0:
		return fmt.Errorf("the connection broke after %d of %d bytes", d.Size, whole)
	case err != nil:
		return err
	case whole >= 0 && d.Size != whole:
		return fmt.Errorf("the response ended after %d of %d bytes", d.Size, whole)
	}
	return nil
}

// request asks the server for the missing rest of the draft.
func (i *isoImport) request(ctx context.Context, d *storage.Draft) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url, nil)
	if err != nil {
		return nil, refuse("the URL is not valid")
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "Ironplane")
	if d.Size > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.Size))
		if i.validator != "" {
			r.Header.Set("If-Range", i.validator)
		}
	}
	response, err := i.client.Do(r)
	if errors.Is(err, egress.ErrOwnNetwork) || errors.Is(err, egress.ErrUnencrypted) || errors.Is(err, egress.ErrRedirects) {
		return nil, refuse("%s", egress.Describe(err))
	}
	return response, err
}

func (i *isoImport) tooLarge() error {
	return refuse("the ISO is larger than %d GiB, the limit of the setting pxe.iso_size", i.maxSize>>30)
}

// errChanged says that the file on the server is not the one that the draft began with.
var errChanged = errors.New("the file on the server has changed")

// checkResponse returns the size of the whole ISO, or -1 if the server does not send it. The response must continue the
// draft. If the file has changed and the response is the whole new file, it fails with errChanged.
func (i *isoImport) checkResponse(response *http.Response, d *storage.Draft) (whole int64, err error) {
	switch status := response.StatusCode; {
	case status == http.StatusOK && d.Size == 0:
		return response.ContentLength, nil
	case status == http.StatusOK:
		return 0, errChanged
	case status == http.StatusPartialContent:
		part := contentRange.FindStringSubmatch(response.Header.Get("Content-Range"))
		if part == nil || part[1] != strconv.FormatInt(d.Size, 10) {
			return 0, refuse("the server sent another range than requested")
		}
		if whole, err = strconv.ParseInt(part[2], 10, 64); err != nil {
			whole = -1
		}
		return whole, nil
	case status == http.StatusRequestedRangeNotSatisfiable && response.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.Size):
		response.Body = http.NoBody
		return d.Size, nil // the download was already complete
	case status == http.StatusRequestedRangeNotSatisfiable && d.Size > 0:
		if _, err := i.restart(response.Request.Context(), d); err != nil {
			return 0, err
		}
		return 0, errors.New("the file on the server has become shorter")
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return 0, fmt.Errorf("the server answered %d", status)
	default:
		return 0, refuse("the server answered %d", status)
	}
}

// silenceReader runs its timer only while it waits for data.
type silenceReader struct {
	io.Reader
	timer   *time.Timer
	silence time.Duration
}

func (h *silenceReader) Read(p []byte) (int, error) {
	h.timer.Reset(h.silence)
	n, err := h.Reader.Read(p)
	h.timer.Stop()
	return n, err
}
