package media

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/media/upload"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

// PXEDriver is a file that an installer needs for a machine's hardware. File servers hold it as drivers/<id>.
type PXEDriver struct {
	rest.Versioned
	ID     int64  `json:"id" db:"id"`
	Name   string `json:"name" db:"name"`
	Size   int64  `json:"size" db:"size" ext:"true" doc:"The size in bytes."`
	SHA256 string `json:"sha256" db:"sha256" ext:"true" doc:"The SHA-256 in hexadecimal."`
}

// driverBody is the body that creates or edits a driver. In it, Content is the SHA-256 of a stored file, not the file
// itself.
type driverBody struct {
	Name    string `json:"name" db:"name" required:"create" example:"virtio for Windows"`
	Content string `json:"driver" db:"content" required:"create" max:"536870912" lines:"true" example:"aXJvbnBsYW5l" doc:"The file, at most 512 MiB. In JSON it is base64."`
	Upload  string `json:"upload" ext:"true" max:"2000" doc:"Instead of driver: the path or id of a complete upload."`
}

const (
	// sumPrefix is the prefix of a SHA-256 that stands for a stored file in a body.
	sumPrefix = "sha256:"
	// maxDriverSize is the maximum size of a driver in bytes.
	maxDriverSize = 512 << 20
	// uploadTTL is how long a file is kept that no driver or ISO was made of.
	uploadTTL = 24 * time.Hour
)

// Resolve refuses a value that is not a file, such as a number.
func (b *driverBody) Resolve(invalid *problem.Fields) {
	if b.Content != "" && !strings.HasPrefix(b.Content, sumPrefix) {
		invalid.Add("/driver", "type", "must be a base64 string")
	}
}

// Drivers serves drivers.
type Drivers struct {
	db      *pg.DB
	store   *storage.Store
	uploads *Uploads
}

// NewDrivers returns the drivers of a database with the current schema.
func NewDrivers(db *pg.DB, store *storage.Store, uploads *Uploads) *Drivers {
	return &Drivers{db, store, uploads}
}

var (
	drivers     = pg.NewView[PXEDriver]("driver_view")
	driverTable = table.New[driverBody]("driver", "driver_view", nil)
)

// driverPath returns the path of a driver on file servers.
func driverPath(id int64) string { return fmt.Sprint("drivers/", id) }

// Routes returns the routes of drivers.
func (s *Drivers) Routes() []rest.Route {
	has := guard.Has(permission.PXESettings)
	return append(rest.Resource[PXEDriver, driverBody]{
		Path:        "/pxe/driver",
		ID:          "driver_id",
		Noun:        "driver",
		Guard:       has,
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "virtio for Windows Server"}`,
		Table:       "driver",
		View:        "driver_view",
		ReadBody:    s.readDriver,
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"name": "name"},
		},
		Insert: func(ctx context.Context, tx *pg.Tx, b *driverBody) (int64, error) {
			id, err := driverTable.Insert(ctx, tx, b)
			if err != nil {
				return 0, err
			}
			return id, publishDriver(ctx, tx, id, b.Content)
		},
		Update: func(ctx context.Context, tx *pg.Tx, id int64, b *driverBody) error {
			before, err := driverTable.Load(ctx, tx, id)
			if err == nil && before.Content != b.Content {
				err = errors.Join(storage.Remove(ctx, tx, driverPath(id)), publishDriver(ctx, tx, id, b.Content))
			}
			if err != nil {
				return err
			}
			return driverTable.Update(ctx, tx, id, b)
		},
		Delete: func(ctx context.Context, tx *pg.Tx, item *PXEDriver) error {
			if err := reference.DeleteUnlessProfiles(ctx, tx, "driver", "Driver", "$1 = ANY (driver_ids)", item.ID); err != nil {
				return err
			}
			return storage.Remove(ctx, tx, driverPath(item.ID))
		},
	}.Routes(), rest.Raw[rest.Item]{Method: http.MethodGet, Path: "/pxe/driver/{driver_id}/content", Guard: has, Name: "getDriverContent",
		Summary: "Download a driver's file", Extension: true,
		Returns: []string{"application/octet-stream"}, Ranges: true, Do: s.serveDriver})
}

// discardTimeout bounds the deletion of a refused file. It runs even if the caller has disconnected.
const discardTimeout = time.Minute

// readDriver reads a body and stores the file in it. If the body is refused, the file is deleted again.
func (s *Drivers) readDriver(r *http.Request) (text []byte, err error) {
	var sent []int64
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), discardTimeout)
		defer cancel()
		for _, id := range sent {
			err = errors.Join(err, s.store.Discard(ctx, id))
		}
	}()
	text, err = upload.Form{Member: "driver", Put: func(from io.Reader) (string, error) {
		file, err := s.putDriver(r.Context(), from)
		if err != nil || file.ID == 0 {
			return "", err
		}
		sent = append(sent, file.ID)
		return sumPrefix + file.SHA256, nil
	}}.Read(r)
	if err != nil {
		return nil, err
	}
	return s.resolveUpload(r.Context(), text)
}

// resolveUpload replaces the member upload of a body by the file that it names.
func (s *Drivers) resolveUpload(ctx context.Context, text []byte) ([]byte, error) {
	var sent map[string]json.RawMessage
	var address string
	if json.Unmarshal(text, &sent) != nil || json.Unmarshal(sent["upload"], &address) != nil ||
		address == "" { // the reader of the body reports the error
		return text, nil
	}
	if file := string(sent["driver"]); file != "" && file != `""` && file != "null" {
		return nil, problem.Member("/upload", "invalid", "cannot be sent together with driver")
	}
	u, err := s.uploads.findComplete(ctx, s.db, address)
	if err != nil {
		return nil, err
	}
	if u.size > maxDriverSize {
		return nil, problem.Member("/upload", "too_large", "has %d bytes: a driver can have at most %d", u.size, maxDriverSize)
	}
	sum, err := s.uploads.finish(ctx, &u)
	if err != nil {
		return nil, err
	}
	if sent["driver"], err = json.Marshal(sumPrefix + sum); err != nil {
		return nil, fmt.Errorf("encode the SHA-256 of an upload: %w", err)
	}
	return json.Marshal(sent)
}

// putDriver stores a file. It returns the zero File for an empty one.
func (s *Drivers) putDriver(ctx context.Context, from io.Reader) (file storage.File, err error) {
	d, err := s.store.NewDraft(ctx, uploadTTL)
	if err != nil {
		return file, err
	}
	err = d.Append(ctx, from, maxDriverSize)
	if errors.Is(err, storage.ErrTooLarge) {
		err = problem.New(problem.TooLarge, "A driver can have at most %d bytes.", maxDriverSize)
	}
	if err == nil && d.Size > 0 {
		err = s.db.InTx(ctx, func(tx *pg.Tx) (err error) {
			tx.Unrecorded("the file belongs to no driver yet")
			file, err = d.Finish(ctx, tx)
			return err
		})
		if err == nil {
			return file, nil
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	return storage.File{}, errors.Join(err, s.store.Discard(ctx, d.ID))
}

// publishDriver publishes the stored file of a driver.
func publishDriver(ctx context.Context, tx *pg.Tx, id int64, content string) error {
	err := storage.Claim(ctx, tx, strings.TrimPrefix(content, sumPrefix), driverPath(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.New(problem.Unavailable, "The uploaded file has expired. Send it again.").Because(err)
	}
	return err
}

// serveDriver sends a driver's file, with support for ranges.
func (s *Drivers) serveDriver(ctx context.Context, c *rest.RawCall, req rest.Item) error {
	driver, err := drivers.Get(ctx, s.db, req.ID)
	if err != nil {
		return err
	}
	content, err := s.store.OpenAt(ctx, driverPath(req.ID))
	if err != nil {
		return err
	}
	defer content.Close()
	sum, err := hex.DecodeString(content.SHA256)
	if err != nil {
		return fmt.Errorf("parse the SHA-256 of a driver: %w", err)
	}
	header := c.Writer.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": driver.Name}))
	header.Set("ETag", `"`+content.SHA256+`"`)
	header.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":") // RFC 9530
	http.ServeContent(c.Writer, c.Request, "", time.Time{}, content)
	return nil
}
