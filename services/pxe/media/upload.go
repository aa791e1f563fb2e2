package media

import (
	"context"
	"crypto/rand"
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
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

const (
	uploadsPath = "/pxe/driver-upload"
	// maxUploads is how many unused uploads a caller may have.
	maxUploads = 20
)

// Uploads serves uploads of files by the protocol tus. A driver or an ISO is then made of an upload.
type Uploads struct {
	db       *pg.DB
	store    *storage.Store
	settings func() settings.Values
}

// NewUploads returns the uploads of a database with the current schema.
func NewUploads(db *pg.DB, store *storage.Store, current func() settings.Values) *Uploads {
	return &Uploads{db, store, current}
}

// maxSize returns the maximum size of an upload in bytes: that of an ISO, or of a driver if that is larger.
func (s *Uploads) maxSize() int64 { return max(maxISOSize(s.settings()), maxDriverSize) }

// fileUpload is a row of driver_upload.
type fileUpload struct {
	id, metadata string
	offset, size int64
	file         *int64
	sha256       *string
	expires      time.Time
}

type uploadRequest struct {
	ID string `path:"upload_id"`
}

// Routes returns the routes of uploads.
func (s *Uploads) Routes() []rest.Route {
	const one = uploadsPath + "/{upload_id}"
	has := guard.Has(permission.PXESettings)
	return []rest.Route{
		rest.Raw[rest.None]{
			Method:    http.MethodPost,
			Path:      uploadsPath,
			Guard:     has,
			Name:      "beginDriverUpload",
			Summary:   "Start an upload of a file",
			Extension: true,
			Doc: "Uploads a file in several requests by the protocol tus 1.0. Upload-Length is the size of the file. The header Location " +
				"of the response is the path of the upload. Send it as the member upload of a driver or an ISO.",
			Status:        http.StatusCreated,
			ErrorStatuses: []int{http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge},
			Do:            s.begin,
		},
		rest.Raw[uploadRequest]{
			Method:    http.MethodGet,
			Path:      one,
			Guard:     has,
			Name:      "getDriverUpload",
			Summary:   "View the progress of an upload",
			Extension: true,
			Doc: "tus clients send this as HEAD. The header Upload-Offset is the number of bytes received. " +
				"Callers see only their own uploads.",
			Status:        http.StatusNoContent,
			ErrorStatuses: []int{http.StatusPreconditionFailed},
			Do:            s.view,
		},
		rest.Raw[uploadRequest]{
			Method:    http.MethodPatch,
			Path:      one,
			Guard:     has,
			Name:      "continueDriverUpload",
			Summary:   "Continue an upload",
			Extension: true,
			Doc: "The header Upload-Offset must be the number of bytes received so far. Received bytes are kept if the connection breaks. " +
				"A request has at most 512 MiB.",
			Accepts: []string{
				tusMedia,
			},
			MaxBody:       maxDriverSize,
			Status:        http.StatusNoContent,
			ErrorStatuses: []int{http.StatusConflict, http.StatusPreconditionFailed},
			Do:            s.proceed,
		},
		rest.Raw[uploadRequest]{
			Method:        http.MethodDelete,
			Path:          one,
			Guard:         has,
			Name:          "endDriverUpload",
			Summary:       "Delete an upload",
			Extension:     true,
			Status:        http.StatusNoContent,
			ErrorStatuses: []int{http.StatusPreconditionFailed},
			Do:            s.end,
		},
	}
}

// uploader returns the owner of the caller's uploads.
func uploader(ctx context.Context) string { return principal.FromContext(ctx).Principal.Owner.URL() }

// begin creates an empty upload.
func (s *Uploads) begin(ctx context.Context, c *rest.RawCall, _ rest.None) error {
	if err := s.checkTusVersion(c); err != nil {
		return err
	}
	size, err := parseByteCount(c.Request, "Upload-Length")
	if err != nil {
		return err
	}
	metadata := c.Request.Header.Get("Upload-Metadata")
	switch {
	case size > s.maxSize():
		return problem.New(problem.TooLarge, "An upload can have at most %d bytes.", s.maxSize())
	case size == 0:
		return problem.New(problem.BadRequest, "Upload-Length must be 1 or more.")
	case !isMetadata(metadata):
		return problem.New(
			problem.BadRequest,
			"Upload-Metadata must be a comma-separated list of names, each followed by a space and a base64 value, of at most %d characters.",
			maxMetadata,
		)
	}
	d, err := s.store.NewDraft(ctx, uploadTTL)
	if err != nil {
		return err
	}
	u := fileUpload{id: rand.Text()}
	err = c.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is made of the file yet")
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
				"You have %d unused uploads. Delete one, or wait until one expires.",
				waiting,
			)
		}
		err = tx.QueryRow(ctx, "INSERT INTO driver_upload (id, owner, size, metadata, file_id, expires_at) "+
			"VALUES ($1, $2, $3, $4, $5, now() + $6::interval) RETURNING expires_at",
			u.id, uploader(ctx), size, metadata, d.ID, uploadTTL).
			Scan(&u.expires)
		if err != nil {
			return fmt.Errorf("insert an upload: %w", err)
		}
		return nil
	})
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
		defer cancel()
		return errors.Join(err, s.store.Discard(ctx, d.ID))
	}
	c.Writer.Header().Set("Location", uploadsPath+"/"+u.id)
	u.writeExpiry(c)
	c.Writer.WriteHeader(http.StatusCreated)
	return nil
}

// find reads an upload of the caller. It fails with pgx.ErrNoRows if there is none or it has expired.
func (s *Uploads) find(ctx context.Context, q pg.Querier, id string) (u fileUpload, err error) {
	err = q.QueryRow(ctx, `SELECT u.id, u.metadata, coalesce(f.size, 0), u.size, u.file_id, u.sha256, u.expires_at FROM driver_upload u LEFT JOIN stored_file f ON f.id = u.file_id
		WHERE u.id = $1 AND u.owner = $2 AND u.expires_at > now()`, id, uploader(ctx)).
		Scan(&u.id, &u.metadata, &u.offset, &u.size, &u.file, &u.sha256, &u.expires)
	if err != nil {
		return u, err
	}
	if u.file == nil && u.sha256 == nil { // the file has just expired
		return u, pgx.ErrNoRows
	}
	if u.file == nil {
		u.offset = u.size // what was made of it was deleted since
	}
	return u, nil
}

// view responds with the offset of an upload.
func (s *Uploads) view(ctx context.Context, c *rest.RawCall, of uploadRequest) error {
	u, err := s.find(ctx, s.db, of.ID)
	if err == nil {
		err = s.checkTusVersion(c)
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
	u.writeExpiry(c)
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

// proceed appends the body to an upload at its offset.
func (s *Uploads) proceed(ctx context.Context, c *rest.RawCall, of uploadRequest) error {
	u, err := s.find(ctx, s.db, of.ID)
	if err == nil {
		err = s.checkTusVersion(c)
	}
	if err != nil {
		return err
	}
	offset, err := parseByteCount(c.Request, "Upload-Offset")
	if err != nil {
		return err
	}
	if offset != u.offset {
		return problem.New(problem.Conflict, "Upload-Offset is %d, but must be %d: that many bytes have arrived.", offset, u.offset)
	}
	if u.offset < u.size {
		if err := s.append(ctx, c, &u); err != nil {
			return err
		}
	} else if n, _ := c.Request.Body.Read(make([]byte, 1)); n > 0 {
		return uploadTooLong(&u)
	}
	c.Writer.Header().Set("Upload-Offset", strconv.FormatInt(u.offset, 10))
	u.writeExpiry(c)
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

// uploadTooLong refuses data after the end of an upload.
func uploadTooLong(u *fileUpload) error {
	return problem.New(problem.TooLarge, "The file is larger than its Upload-Length of %d bytes.", u.size)
}

// append writes the body to the end of the file.
func (s *Uploads) append(ctx context.Context, c *rest.RawCall, u *fileUpload) error {
	if u.file == nil || c.Request.ContentLength > u.size-u.offset {
		return uploadTooLong(u)
	}
	d, err := s.store.Resume(ctx, *u.file, uploadTTL)
	if err != nil {
		return err
	}
	if d.Size != u.offset {
		return concurrentUploadError()
	}
	err = d.Append(ctx, c.Request.Body, u.size)
	u.offset = d.Size
	switch {
	case errors.Is(err, storage.ErrTooLarge):
		return uploadTooLong(u)
	case errors.Is(err, storage.ErrConcurrentWrite):
		return concurrentUploadError()
	case err != nil:
		return err
	}
	return c.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is made of the file yet")
		err := tx.QueryRow(ctx, "UPDATE driver_upload SET expires_at = now() + $2::interval WHERE id = $1 RETURNING expires_at", u.id, uploadTTL).
			Scan(&u.expires)
		if err != nil {
			return fmt.Errorf("extend the life of an upload: %w", err)
		}
		return nil
	})
}

// concurrentUploadError refuses a request to an upload that another request is writing to.
func concurrentUploadError() error {
	return problem.New(problem.Conflict, "Another request is writing to this upload. Read its offset, and continue from there.")
}

// end deletes an upload, and its file unless a driver or an ISO was made of it.
func (s *Uploads) end(ctx context.Context, c *rest.RawCall, of uploadRequest) error {
	u, err := s.find(ctx, s.db, of.ID)
	if err == nil {
		err = s.checkTusVersion(c)
	}
	if err != nil {
		return err
	}
	err = c.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is made of the file")
		if _, err := tx.Exec(ctx, "DELETE FROM driver_upload WHERE id = $1", u.id); err != nil {
			return fmt.Errorf("delete an upload: %w", err)
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

// findComplete returns a complete upload of the caller. reference is its path or id. The error names the member upload.
func (s *Uploads) findComplete(ctx context.Context, q pg.Querier, reference string) (fileUpload, error) {
	u, err := s.find(ctx, q, path.Base(reference))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return u, problem.Member("/upload", "not_found", "does not name one of your uploads")
	case err != nil:
		return u, fmt.Errorf("find an upload: %w", err)
	case u.offset < u.size:
		return u, problem.Member("/upload", "incomplete", "is incomplete: %d of %d bytes have arrived", u.offset, u.size)
	}
	return u, nil
}

// finish completes the file of an upload, and returns its SHA-256.
func (s *Uploads) finish(ctx context.Context, u *fileUpload) (sha256 string, err error) {
	if u.sha256 != nil {
		return *u.sha256, nil
	}
	d, err := s.store.Resume(ctx, *u.file, uploadTTL)
	if err != nil {
		return "", err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is made of the file yet")
		file, err := d.Finish(ctx, tx)
		if err == nil {
			sha256 = file.SHA256
			_, err = tx.Exec(ctx, "UPDATE driver_upload SET sha256 = $2 WHERE id = $1", u.id, sha256)
		}
		return err
	})
	if errors.Is(err, storage.ErrConcurrentWrite) {
		return "", concurrentUploadError()
	}
	return sha256, err
}

// claim ends a complete upload of the caller, and returns its file, which no longer expires. The file may lack its SHA-256.
func (s *Uploads) claim(ctx context.Context, tx *pg.Tx, reference string, maxSize int64) (file int64, err error) {
	u, err := s.findComplete(ctx, tx, reference)
	if err != nil {
		return 0, err
	}
	if u.size > maxSize {
		return 0, problem.Member("/upload", "too_large", "has %d bytes: at most %d are allowed", u.size, maxSize)
	}
	err = tx.QueryRow(ctx, `UPDATE stored_file f SET expires_at = NULL FROM driver_upload u
		WHERE f.id = u.file_id AND u.id = $1 AND f.path IS NULL AND f.expires_at IS NOT NULL RETURNING f.id`, u.id).Scan(&file)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, problem.Member("/upload", "used", "was used already: upload the file again")
	}
	if err == nil {
		_, err = tx.Exec(ctx, "DELETE FROM driver_upload WHERE id = $1", u.id)
	}
	if err != nil {
		return 0, fmt.Errorf("claim an upload: %w", err)
	}
	return file, nil
}

// DeleteExpired deletes the uploads that have expired. Sweep of the store deletes their files.
func (s *Uploads) DeleteExpired(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is made of the file")
		if _, err := tx.Exec(ctx, "DELETE FROM driver_upload WHERE expires_at < now()"); err != nil {
			return fmt.Errorf("delete expired uploads: %w", err)
		}
		return nil
	})
}
