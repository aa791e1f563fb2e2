package route

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
)

// Migrations creates the tables for responses to requests with an Idempotency-Key.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// IdempotencyHeader is the header that names an attempt.
const IdempotencyHeader = "Idempotency-Key"

const (
	// duplicateTimeout is how long a request waits for an earlier one with the same key.
	duplicateTimeout = 15 * time.Second
	// minDuplicateInterval is the first wait between checks for the earlier request. It doubles up to maxDuplicateInterval. A
	// waiting request holds no connection.
	minDuplicateInterval = 10 * time.Millisecond
	maxDuplicateInterval = 250 * time.Millisecond
	// stripes is the number of rows in idempotency_stripe.
	stripes = 1024
)

// attempt is a POST that its caller may repeat. The first response is stored for a day. It is sealed with a key from the
// header's value, because a response may have a new API key.
type attempt struct {
	id          []byte // of the stored response; does not reveal the header's value
	fingerprint []byte // digest of the request
	seal        cipher.AEAD
}

// newAttempt returns the attempt of a request, or nil if it has no Idempotency-Key. Each API key has attempts of its own, even
// among keys of one owner. A response may have what a key with fewer permissions must not see.
func newAttempt(r *http.Request, text []byte) (*attempt, error) {
	value, caller := r.Header.Get(IdempotencyHeader), principal.FromContext(r.Context()).Principal
	if value == "" || caller == nil || r.Method != http.MethodPost {
		return nil, nil
	}
	if len(value) > body.MaxString || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
		return nil, problem.New(problem.BadRequest, "%s can have at most %d printable ASCII characters.", IdempotencyHeader, body.MaxString)
	}
	keys, err := hkdf.Key(
		sha256.New,
		[]byte(value),
		[]byte(fmt.Sprintf("%s %d", caller.Owner.URL(), caller.KeyID)),
		"ironplane idempotency",
		3*sha256.Size,
	)
	if err != nil {
		return nil, fmt.Errorf("derive the keys of an attempt: %w", err)
	}
	block, err := aes.NewCipher(keys[sha256.Size : 2*sha256.Size])
	if err != nil {
		return nil, fmt.Errorf("derive the keys of an attempt: %w", err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("derive the keys of an attempt: %w", err)
	}
	asked := hmac.New(sha256.New, keys[2*sha256.Size:])
	for _, part := range []string{r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type"), string(text)} {
		_ = binary.Write(asked, binary.BigEndian, int64(len(part))) // a hash accepts everything
		asked.Write([]byte(part))
	}
	return &attempt{id: keys[:sha256.Size], fingerprint: asked.Sum(nil), seal: seal}, nil
}

// errDuplicate means that the same request is in progress, or another one of the same stripe.
var errDuplicate = errors.New("the same request is in progress")

// run makes the change once for all attempts with the same key, and returns the same bytes to each. A nil attempt makes the
// change.
func (a *attempt) run(ctx context.Context, db *pg.DB, allowed func(*pg.Tx) error, do func(*pg.Tx) (*reply, error)) (*reply, error) {
	deadline := time.Now().Add(duplicateTimeout)
	for interval := minDuplicateInterval; ; interval = min(2*interval, maxDuplicateInterval) {
		var answer *reply
		err := db.InTx(ctx, func(tx *pg.Tx) (err error) {
			if err := allowed(tx); err != nil {
				return err
			}
			if a == nil {
				answer, err = do(tx)
				return err
			}
			answer, err = a.runOnce(ctx, tx, do)
			return err
		})
		if !errors.Is(err, errDuplicate) {
			return answer, err
		}
		if time.Now().Add(interval).After(deadline) {
			f := problem.New(problem.Unavailable, "A request with this %s is still in progress. Try again.", IdempotencyHeader)
			f.RetryAfter = time.Second
			return nil, f
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a duplicate: %w", ctx.Err())
		}
	}
}

func (a *attempt) runOnce(ctx context.Context, tx *pg.Tx, do func(*pg.Tx) (*reply, error)) (*reply, error) {
	stripe := binary.BigEndian.Uint16(a.id) % stripes
	locked, err := tx.Exec(ctx, "SELECT FROM idempotency_stripe WHERE number = $1 FOR UPDATE SKIP LOCKED", stripe)
	if err != nil {
		return nil, fmt.Errorf("lock out duplicates: %w", err)
	}
	if locked.RowsAffected() == 0 {
		return nil, errDuplicate
	}
	kept, err := a.load(ctx, tx)
	if kept != nil || err != nil {
		tx.Unrecorded("the response was stored before")
		return kept, err
	}
	answer, err := do(tx)
	if err != nil {
		return nil, err
	}
	return answer, a.store(ctx, tx, answer)
}

// storedReply is a response as it is sealed.
type storedReply struct {
	ETag string
	Body []byte
}

func (a *attempt) load(ctx context.Context, tx *pg.Tx) (*reply, error) {
	var fingerprint, sealed []byte
	err := tx.QueryRow(ctx, "SELECT fingerprint, answer FROM idempotency WHERE id = $1 AND expires_at > now()", a.id).
		Scan(&fingerprint, &sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for an earlier answer: %w", err)
	}
	if !hmac.Equal(fingerprint, a.fingerprint) {
		return nil, problem.New(problem.Conflict, "This %s was used for another request.", IdempotencyHeader)
	}
	nonce := sealed[:a.seal.NonceSize()]
	opened, err := a.seal.Open(nil, nonce, sealed[len(nonce):], a.id)
	if err != nil {
		return nil, fmt.Errorf("open an earlier answer: %w", err)
	}
	var kept storedReply
	if err := json.Unmarshal(opened, &kept); err != nil {
		return nil, fmt.Errorf("read an earlier answer: %w", err)
	}
	return &reply{etag: kept.ETag, body: kept.Body}, nil
}

// store stores the response in the transaction of the change.
func (a *attempt) store(ctx context.Context, tx *pg.Tx, answer *reply) error {
	opened, err := json.Marshal(storedReply{answer.etag, answer.body})
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	nonce := make([]byte, a.seal.NonceSize())
	rand.Read(nonce)
	sealed := a.seal.Seal(nonce, nonce, opened, a.id)
	_, err = tx.Exec(ctx, `
		INSERT INTO idempotency (id, fingerprint, answer, expires_at) VALUES ($1, $2, $3, now() + interval '24 hours')
		ON CONFLICT (id) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, answer = EXCLUDED.answer, expires_at = EXCLUDED.expires_at`,
		a.id, a.fingerprint, sealed)
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return nil
}
