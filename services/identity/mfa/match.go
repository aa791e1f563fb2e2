package mfa

import (
	"context"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/passkey"
)

// matched says what an answer matched. Each match counts once.
type matched struct {
	step     int64        // of totp
	recovery []byte       // the hash of a recovery code
	key      *passkey.Key // which signed, with its new counter
}

// stepSeconds is how long an app shows a code. skew is how many codes before and after the current one count, as clocks differ.
const stepSeconds, skew = 30, 1

// match compares an answer with the code or, where the authenticator is verified, with the account's recovery codes.
func (s *Service) match(ctx context.Context, o *openCode, answer secret.String) (m matched, err error) {
	var right bool
	text := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(answer.Reveal()))
	switch o.method {
	case byEmail:
		token, err := s.Box.Open(tokenPlace(o.id), o.token)
		if err != nil {
			return m, err
		}
		right = token.Equal(secret.New(text))
	case byTOTP:
		shared, err := s.Box.Open(seal.Place{Table: "authenticator", Column: "secret", ID: o.auth}, o.secret)
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
	m.recovery = keys.HashToken(text)
	err = s.DB.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM recovery_code WHERE hash = $1 AND owner_type = $2 AND owner_id = $3)", m.recovery, o.owner.Type,
		o.owner.ID,
	).
		Scan(&right)
	if err != nil {
		return m, fmt.Errorf("look for a recovery code: %w", err)
	}
	if !right {
		return m, errWrongCode()
	}
	return m, nil
}

// stepOf returns the step of which a text is the code; 0 where it is of none that counts now.
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
