package media

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

const (
	uploadsPath = "/pxe/driver-upload"
	// maxUploads is how many files a caller may have sent, in whole or in part, that no driver was made of.
	maxUploads = 20
)

// driverUpload is a row of driver_upload.
type driverUpload struct {
	id, metadata string
	offset, size int64
	file         *int64
	sha256       *string
	expires      time.Time
}

type ofUpload struct {
	ID string `path:"upload_id"`
}

func (s *Drivers) driverUploads() []rest.Route {
	const one = uploadsPath + "/{upload_id}"
	has := guard.Has(permission.PXESettings)
	return []rest.Route{
		rest.Raw[rest.None]{
			Method:    http.MethodPost,
			Path:      uploadsPath,
			Guard:     has,
			Name:      "beginDriverUpload",
			Summary:   "Begin to send a driver's file in several requests",
			Extension: true,
			Doc: "This is tus 1.0: Upload-Length says how long the file is, and Location of the answer where it is sent to. A driver is " +
				"made of it by its address as upload.",
			Status:        http.StatusCreated,
			ErrorStatuses: []int{http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge},
			Do:            s.beginUpload,
		},
		rest.Raw[ofUpload]{
			Method:        http.MethodGet,
			Path:          one,
			Guard:         has,
			Name:          "getDriverUpload",
			Summary:       "View how much of a driver's file has arrived",
			Extension:     true,
			Doc:           "By HEAD, as tus asks for it. Callers see what they have begun themselves. Upload-Offset says how much it is.",
			Status:        http.StatusNoContent,
			ErrorStatuses: []int{http.StatusPreconditionFailed},
			Do:            s.viewUpload,
		},
		rest.Raw[ofUpload]{
			Method:    http.MethodPatch,
			Path:      one,
			Guard:     has,
			Name:      "continueDriverUpload",
			Summary:   "Send the rest of a driver's file, or a part of that",
			Extension: true,
			Doc:       "From Upload-Offset on, which is how much has arrived. What arrives stays, also where the connection breaks.",
			Accepts: []string{
				tusMedia,
			},
			MaxBody:       maxDriver,
			Status:        http.StatusNoContent,
			ErrorStatuses: []int{http.StatusConflict, http.StatusPreconditionFailed},
			Do:            s.continueUpload,
		},
		rest.Raw[ofUpload]{
			Method:        http.MethodDelete,
			Path:          one,
			Guard:         has,
			Name:          "endDriverUpload",
			Summary:       "Forget a driver's file that has arrived, or a part of it",
			Extension:     true,
			Status:        http.StatusNoContent,
			ErrorStatuses: []int{http.StatusPreconditionFailed},
			Do:            s.endUpload,
		},
	}
}

// uploader is whose uploads a caller sees.
func uploader(ctx context.Context) string { return principal.From(ctx).Principal.Owner.URL() }

func (s *Drivers) beginUpload(ctx context.Context, c *rest.RawCall, _ rest.None) error {
	if err := speaksTus(c); err != nil {
		return err
	}
	size, err := bytesIn(c.Request, "Upload-Length")
	if err != nil {
		return err
	}
	metadata := c.Request.Header.Get("Upload-Metadata")
	switch {
	case size > maxDriver:
		return problem.New(problem.TooLarge, "A driver can have at most %d bytes.", maxDriver)
	case size == 0:
		return problem.New(problem.BadRequest, "Upload-Length must be 1 or more: a driver is not empty.")
	case !isMetadata(metadata):
		return problem.New(
			problem.BadRequest,
			"Upload-Metadata must be names, each with a value in base64 behind a blank, and commas between, of at most %d characters.",
			maxMetadata,
		)
	}
	d, err := s.store.Draft(ctx, uploadTTL)
	if err != nil {
		return err
	}
	u := driverUpload{id: rand.Text()}
	err = c.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no driver is made of it yet")
		if err := tx.Lock(ctx, "uploads of drivers", 0); err != nil {
			return err
		}
		var waiting int
		err := tx.QueryRow(ctx, "SELECT count(*) FROM driver_upload u JOIN stored_file f ON f.id = u.file_id "+
			"WHERE u.owner = $1 AND f.path IS NULL", uploader(ctx)).
			Scan(&waiting)
		if err != nil {
			return fmt.Errorf("count the uploads: %w", err)
		}
		if waiting >= maxUploads {
			return problem.New(
				problem.Conflict,
				"There are %d uploads that no driver was made of: one has to be deleted first, or to expire.",
				waiting,
			)
		}
		err = tx.QueryRow(ctx, "INSERT INTO driver_upload (id, owner, size, metadata, file_id, expires_at) "+
			"VALUES ($1, $2, $3, $4, $5, now() + $6::interval) RETURNING expires_at",
			u.id, uploader(ctx), size, metadata, d.ID, uploadTTL).
			Scan(&u.expires)
		if err != nil {
			return fmt.Errorf("note an upload: %w", err)
		}
		return nil
	})
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
		defer cancel()
		return errors.Join(err, s.store.Discard(ctx, d.ID))
	}
	c.Writer.Header().Set("Location", uploadsPath+"/"+u.id)
	u.expiry(c)
	c.Writer.WriteHeader(http.StatusCreated)
	return nil
}

func (u *driverUpload) expiry(c *rest.RawCall) {
	c.Writer.Header().Set("Upload-Expires", u.expires.UTC().Format(http.TimeFormat))
}

// upload finds one of the caller's that has not expired.
func (s *Drivers) upload(ctx context.Context, id string) (u driverUpload, err error) {
	err = s.db.QueryRow(ctx, `SELECT u.id, u.metadata, coalesce(f.size, 0), u.size, u.file_id, u.sha256, u.expires_at FROM driver_upload u LEFT JOIN stored_file f ON f.id = u.file_id
		WHERE u.id = $1 AND u.owner = $2 AND u.expires_at > now()`, id, uploader(ctx)).
		Scan(&u.id, &u.metadata, &u.offset, &u.size, &u.file, &u.sha256, &u.expires)
	if err != nil {
		return u, err
	}
	if u.file == nil && u.sha256 == nil { // its file has expired a moment earlier
		return u, pgx.ErrNoRows
	}
	if u.file == nil {
		u.offset = u.size // a driver was made of it, and is gone
	}
	return u, nil
}

func (s *Drivers) viewUpload(ctx context.Context, c *rest.RawCall, of ofUpload) error {
	u, err := s.upload(ctx, of.ID)
	if err == nil {
		err = speaksTus(c)
	}
	if err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Upload-Offset", strconv.FormatInt(u.offset, 10))
	h.Set("Upload-Length", strconv.FormatInt(u.size, 10))
	if u.metadata != "" {
		h.Set("Upload-Metadata", u.metadata)
	}
	u.expiry(c)
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Drivers) continueUpload(ctx context.Context, c *rest.RawCall, of ofUpload) error {
	u, err := s.upload(ctx, of.ID)
	if err == nil {
		err = speaksTus(c)
	}
	if err != nil {
		return err
	}
	offset, err := bytesIn(c.Request, "Upload-Offset")
	if err != nil {
		return err
	}
	if offset != u.offset {
		return problem.New(problem.Conflict, "%d bytes have arrived, so that it does not go on at %d.", u.offset, offset)
	}
	if u.offset < u.size {
		if err := s.appendUpload(ctx, c, &u); err != nil {
			return err
		}
	} else if n, _ := c.Request.Body.Read(make([]byte, 1)); n > 0 {
		return tooLong(&u)
	}
	c.Writer.Header().Set("Upload-Offset", strconv.FormatInt(u.offset, 10))
	u.expiry(c)
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

func tooLong(u *driverUpload) error {
	return problem.New(problem.TooLarge, "It goes on behind the %d bytes that Upload-Length named.", u.size)
}

// appendUpload writes what arrives to the end of the file.
func (s *Drivers) appendUpload(ctx context.Context, c *rest.RawCall, u *driverUpload) error {
	if u.file == nil || c.Request.ContentLength > u.size-u.offset {
		return tooLong(u)
	}
	d, err := s.store.Resume(ctx, *u.file, uploadTTL)
	if err != nil {
		return err
	}
	if d.Size != u.offset {
		return errElsewhere()
	}
	err = d.Append(ctx, c.Request.Body, u.size)
	u.offset = d.Size
	switch {
	case errors.Is(err, storage.ErrTooLarge):
		return tooLong(u)
	case errors.Is(err, storage.ErrMovedOn):
		return errElsewhere()
	case err != nil:
		return err
	}
	return c.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no driver is made of it yet")
		err := tx.QueryRow(ctx, "UPDATE driver_upload SET expires_at = now() + $2::interval WHERE id = $1 RETURNING expires_at", u.id, uploadTTL).
			Scan(&u.expires)
		if err != nil {
			return fmt.Errorf("note that an upload goes on: %w", err)
		}
		return nil
	})
}

func errElsewhere() error {
	return problem.New(problem.Conflict, "Another request has gone on with it meanwhile.")
}

func (s *Drivers) endUpload(ctx context.Context, c *rest.RawCall, of ofUpload) error {
	u, err := s.upload(ctx, of.ID)
	if err == nil {
		err = speaksTus(c)
	}
	if err != nil {
		return err
	}
	err = c.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no driver is made of it")
		if _, err := tx.Exec(ctx, "DELETE FROM driver_upload WHERE id = $1", u.id); err != nil {
			return fmt.Errorf("forget an upload: %w", err)
		}
		return nil
	})
	if err == nil && u.file != nil {
		err = s.store.Discard(ctx, *u.file)
	}
	if err != nil {
		return err
	}
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

// withUpload puts the file of an upload that a body names where the body of one request would have it.
func (s *Drivers) withUpload(ctx context.Context, text []byte) ([]byte, error) {
	var sent map[string]json.RawMessage
	var address string
	if json.Unmarshal(text, &sent) != nil || json.Unmarshal(sent["upload"], &address) != nil || address == "" { // as who reads it says
		return text, nil
	}
	if file := string(sent["driver"]); file != "" && file != `""` && file != "null" {
		return nil, problem.Member("/upload", "invalid", "cannot be sent together with driver")
	}
	u, err := s.upload(ctx, path.Base(address))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, problem.Member("/upload", "not_found", "is no upload of yours")
	case err != nil:
		return nil, fmt.Errorf("look for an upload: %w", err)
	case u.offset < u.size:
		return nil, problem.Member("/upload", "incomplete", "has %d of %d bytes", u.offset, u.size)
	}
	sum, err := s.wholeUpload(ctx, &u)
	if err != nil {
		return nil, err
	}
	if sent["driver"], err = json.Marshal(sumPrefix + sum); err != nil {
		return nil, fmt.Errorf("write the sum of an upload: %w", err)
	}
	return json.Marshal(sent)
}

// wholeUpload answers the SHA-256 of a file all of which has arrived.
func (s *Drivers) wholeUpload(ctx context.Context, u *driverUpload) (sha256 string, err error) {
	if u.sha256 != nil {
		return *u.sha256, nil
	}
	d, err := s.store.Resume(ctx, *u.file, uploadTTL)
	if err != nil {
		return "", err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no driver is made of it yet")
		file, err := d.Finish(ctx, tx)
		if err == nil {
			sha256 = file.SHA256
			_, err = tx.Exec(ctx, "UPDATE driver_upload SET sha256 = $2 WHERE id = $1", u.id, sha256)
		}
		return err
	})
	if errors.Is(err, storage.ErrMovedOn) {
		return "", errElsewhere()
	}
	return sha256, err
}

// ForgetUploads deletes the uploads that have expired. The store deletes their files by itself.
func (s *Drivers) ForgetUploads(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no driver is made of it")
		if _, err := tx.Exec(ctx, "DELETE FROM driver_upload WHERE expires_at < now()"); err != nil {
			return fmt.Errorf("forget uploads that expired: %w", err)
		}
		return nil
	})
}
