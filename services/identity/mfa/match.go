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

// matchResult says what an answer has matched. Each match counts once.
type matchResult struct {
	step     int64        // of an app's code
	recovery []byte       // the hash of a recovery code
	key      *passkey.Key // that has signed, with its new counter
}

// stepSeconds is how long an app shows a code. skew is how many codes before and after the current one count, as clocks differ.
const stepSeconds, maxSkew = 30, 1

// match compares an answer with the code. If the authenticator is verified, it also compares it with the account's recovery codes.
func (s *Service) match(ctx context.Context, o *pendingCode, answer secret.String) (m matchResult, err error) {
	var matches bool
	text := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(answer.Reveal()))
	switch o.method {
	case methodEmail:
		token, err := s.Box.Open(tokenLocation(o.id), o.token)
		if err != nil {
			return m, err
		}
		matches = token.Equal(secret.New(text))
	case methodTOTP:
		shared, err := s.Box.Open(seal.Location{Table: "authenticator", Column: "secret", ID: o.auth}, o.secret)
		if err != nil {
			return m, err
		}
		if m.step, err = findStep(text, shared.Reveal()); err != nil {
			return m, err
		}
		matches = m.step != 0
	}
	if matches {
		return m, nil
	}
	if !o.verified {
		return m, errInvalidCode()
	}
	m.recovery = keys.HashToken(text)
	err = s.DB.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM recovery_code WHERE hash = $1 AND owner_type = $2 AND owner_id = $3)", m.recovery, o.owner.Type,
		o.owner.ID,
	).
		Scan(&matches)
	if err != nil {
		return m, fmt.Errorf("find a recovery code: %w", err)
	}
	if !matches {
		return m, errInvalidCode()
	}
	return m, nil
}

// findStep returns the time step whose code a text is, or 0 if it is the code of none within maxSkew of now.
func findStep(text, shared string) (step int64, err error) {
	now := time.Now().Unix() / stepSeconds
	for candidate := now - maxSkew; candidate <= now+maxSkew; candidate++ {
		code, err := hotp.GenerateCodeCustom(shared, uint64(candidate), hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err != nil {
			return 0, fmt.Errorf("generate a TOTP code: %w", err)
		}
		if subtle.ConstantTimeCompare([]byte(code), []byte(text)) == 1 {
			step = candidate
		}
	}
	return step, nil
}
