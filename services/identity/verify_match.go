package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/passkey"
)

// matched is what an answer was found to be, to be used up once.
type matched struct {
	step     int64        // of totp
	recovery []byte       // the hash of a recovery code
	key      *passkey.Key // which signed, with its new counter
}

// stepSeconds is how long an app shows a code; skew is how many before and after this one count, for clocks that differ.
const stepSeconds, skew = 30, 1

// match looks whether an answer is the code, or a recovery code in its place, which is none of an authenticator that is yet to be verified.
func (s *Service) match(ctx context.Context, o *openCode, answer secret.String) (m matched, err error) {
	var right bool
	text := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(answer.Reveal()))
	switch o.method {
	case byEmail:
		token, err := s.box.Open(tokenPlace(o.id), o.token)
		if err != nil {
			return m, err
		}
		right = token.Equal(secret.New(text))
	case byTOTP:
		shared, err := s.box.Open(seal.Place{Table: "authenticator", Column: "secret", ID: o.auth}, o.secret)
		if err != nil {
			return m, err
		}
		if m.step, err = stepOf(text, shared.Reveal()); err != nil {
			return m, err
		}
		right = m.step != 0
	}
	if right {
		return m, nil
	}
	if !o.verified {
		return m, errWrongCode()
	}
	m.recovery = hashOf(text)
	err = s.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM recovery_code WHERE hash = $1 AND owner_type = $2 AND owner_id = $3)", m.recovery, o.owner.Type, o.owner.ID).
		Scan(&right)
	if err != nil {
		return m, fmt.Errorf("look for a recovery code: %w", err)
	}
	if !right {
		return m, errWrongCode()
	}
	return m, nil
}

// stepOf is the step of which a text is the code; 0: of none that counts now.
func stepOf(text, shared string) (step int64, err error) {
	now := time.Now().Unix() / stepSeconds
	for at := now - skew; at <= now+skew; at++ {
		code, err := hotp.GenerateCodeCustom(shared, uint64(at), hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err != nil {
			return 0, fmt.Errorf("make a TOTP code to compare with: %w", err)
		}
		if subtle.ConstantTimeCompare([]byte(code), []byte(text)) == 1 {
			step = at
		}
	}
	return step, nil
}

// recoveryCodes is how many an account is given; each is of recoveryLength random bytes, and shown in groups of four characters.
const recoveryCodes, recoveryLength = 10, 15

// renewRecoveryCodes gives an account other recovery codes.
func renewRecoveryCodes(ctx context.Context, tx *pg.Tx, owner principal.Owner) (codes []string, err error) {
	if err := deleteRecoveryCodes(ctx, tx, owner); err != nil {
		return nil, err
	}
	var hashes [][]byte
	for range recoveryCodes {
		var bits [recoveryLength]byte
		rand.Read(bits[:])
		text := strings.ToLower(base32.StdEncoding.EncodeToString(bits[:]))
		hashes = append(hashes, hashOf(text))
		codes = append(codes, string(bytes.Join(slices.Collect(slices.Chunk([]byte(text), 4)), []byte("-"))))
	}
	if _, err := tx.Exec(
		ctx,
		"INSERT INTO recovery_code (hash, owner_type, owner_id) SELECT unnest($1::bytea[]), $2, $3",
		hashes,
		owner.Type,
		owner.ID,
	); err != nil {
		return nil, fmt.Errorf("keep the recovery codes of %s: %w", owner.URL(), err)
	}
	return codes, nil
}

func deleteRecoveryCodes(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	if _, err := tx.Exec(ctx, "DELETE FROM recovery_code WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return fmt.Errorf("delete the recovery codes of %s: %w", owner.URL(), err)
	}
	return nil
}

func recoveryCodesOf(ctx context.Context, q pg.Querier, owner principal.Owner) (left int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*) FROM recovery_code WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID).Scan(&left)
	if err != nil {
		return 0, fmt.Errorf("count the recovery codes of %s: %w", owner.URL(), err)
	}
	return left, nil
}
