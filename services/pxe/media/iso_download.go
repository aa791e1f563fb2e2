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

// contentRange is the header of an answer with a part: bytes 0-99/200
var contentRange = regexp.MustCompile(`^bytes (\d+)-\d+/(\d+|\*)$`)

// load loads what is missing.
func (i *importing) load(ctx context.Context, d *storage.Draft) error {
	if d.Size > 0 && i.validator == "" && i.wanted == nil { // nobody would know that it is another one by now
		anew, err := i.restart(ctx, d)
		if err != nil {
			return err
		}
		*d = *anew
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errSilent := fmt.Errorf("it sent nothing for %s", i.SilenceTimeout)
	late := time.AfterFunc(i.SilenceTimeout, func() { stop(errSilent) })
	defer late.Stop()
	response, err := i.request(ctx, d)
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			return errSilent
		}
		return err
	}
	defer response.Body.Close()
	whole, err := i.answered(response, d)
	if errors.Is(err, errChanged) {
		var anew *storage.Draft
		if anew, err = i.restart(ctx, d); err == nil {
			*d = *anew
			whole, err = i.answered(response, d)
		}
	}
	if err != nil {
		return err
	}
	if whole > i.most {
		return i.tooLarge()
	}
	validator := response.Header.Get("ETag")
	if validator == "" || validator[0] != '"' { // a weak one is none
		validator = response.Header.Get("Last-Modified")
	}
	if d.Size == 0 {
		if err := i.note(ctx, "validator = nullif($3, ''), expected = nullif($4, -1), error = NULL", validator, whole); err != nil {
			return err
		}
	}
	err = d.Append(ctx, &heard{response.Body, late, i.SilenceTimeout}, i.most)
	switch {
	case errors.Is(err, storage.ErrTooLarge):
		return i.tooLarge()
	case errors.Is(err, storage.ErrMovedOn):
		return errOutdated
	case err != nil && errors.Is(context.Cause(ctx), errSilent):
		return errSilent
	case errors.Is(err, io.ErrUnexpectedEOF) && whole >= 0:
		return fmt.Errorf("it broke off after %d of %d bytes", d.Size, whole)
	case err != nil:
		return err
	case whole >= 0 && d.Size != whole:
		return fmt.Errorf("it ended after %d of %d bytes", d.Size, whole)
	}
	return nil
}

// request asks for what is missing of the draft.
func (i *importing) request(ctx context.Context, d *storage.Draft) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url, nil)
	if err != nil {
		return nil, refuse("its address cannot be read")
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
	if errors.Is(err, egress.ErrOwnNetwork) || errors.Is(err, egress.ErrPlain) || errors.Is(err, egress.ErrRedirects) {
		return nil, refuse("%s", egress.Reason(err))
	}
	return response, err
}

func (i *importing) tooLarge() error {
	return refuse("it is larger than %d GiB, which the setting pxe.iso_size allows", i.most>>30)
}

var errChanged = errors.New("it is another one now")

// answered tells how long the whole is, -1 where nobody knows. The draft is to be gone on with then.
func (i *importing) answered(response *http.Response, d *storage.Draft) (whole int64, err error) {
	switch status := response.StatusCode; {
	case status == http.StatusOK && d.Size == 0:
		return response.ContentLength, nil
	case status == http.StatusOK:
		return 0, errChanged
	case status == http.StatusPartialContent:
		part := contentRange.FindStringSubmatch(response.Header.Get("Content-Range"))
		if part == nil || part[1] != strconv.FormatInt(d.Size, 10) {
			return 0, refuse("it answers another part than was asked for")
		}
		if whole, err = strconv.ParseInt(part[2], 10, 64); err != nil {
			whole = -1
		}
		return whole, nil
	case status == http.StatusRequestedRangeNotSatisfiable && response.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.Size):
		response.Body = http.NoBody
		return d.Size, nil // all of it was loaded
	case status == http.StatusRequestedRangeNotSatisfiable && d.Size > 0:
		if _, err := i.restart(response.Request.Context(), d); err != nil {
			return 0, err
		}
		return 0, errors.New("it is shorter than it was")
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return 0, fmt.Errorf("it answered %d", status)
	default:
		return 0, refuse("it answered %d", status)
	}
}

// heard notes that something comes.
type heard struct {
	io.Reader
	late    *time.Timer
	silence time.Duration
}

func (h *heard) Read(p []byte) (int, error) {
	h.late.Reset(h.silence)
	n, err := h.Reader.Read(p)
	h.late.Stop()
	return n, err
}
