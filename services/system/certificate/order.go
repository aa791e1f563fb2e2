package certificate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Kind is the kind of the certificate's changes in the log.
const Kind = "http.ssl"

// Target returns the certificate as a log item names it.
func (s State) Target() []pg.Target {
	return []pg.Target{{Type: "http/ssl", Noun: "certificate", ID: 1, Version: s.Version}}
}

// attempt tries to obtain the certificate once. If the order was replaced or cancelled, it does nothing.
func (r *Renewer) attempt(ctx context.Context, _ *service.Attempt, ordered orderArgs) error {
	s, err := ReadState(ctx, r.DB)
	if err != nil || s.Order != ordered.Order || !s.IsDue(r.Public.Name) {
		return err
	}
	issued, err := r.obtain(ctx, *s.Email)
	if err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err // the process ends
	}
	if err != nil {
		return errors.Join(err, r.fail(context.WithoutCancel(ctx), ordered, err))
	}
	return r.store(ctx, ordered, issued)
}

// maxError is how many characters of an authority's error message are kept.
const maxError = 1000

// fail stores why an attempt failed, unless the order was replaced.
func (r *Renewer) fail(ctx context.Context, ordered orderArgs, why error) error {
	text := []rune(why.Error())
	text = text[:min(len(text), maxError)]
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the certificate did not change")
		_, err := tx.Exec(ctx, "UPDATE ssl SET error = $2 WHERE ordered = $1 AND email IS NOT NULL", ordered.Order, string(text))
		return err
	})
}

// store puts a new certificate into use.
func (r *Renewer) store(ctx context.Context, ordered orderArgs, issued Issued) error {
	pair, err := tls.X509KeyPair([]byte(issued.Chain), []byte(issued.Key))
	if err != nil {
		return fmt.Errorf("parse the issued certificate: %w", err)
	}
	begin, end := pair.Leaf.NotBefore, pair.Leaf.NotAfter
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		before, err := LockState(ctx, tx)
		if err != nil {
			return err
		}
		if before.Order != ordered.Order || !before.IsDue(r.Public.Name) {
			tx.Unrecorded("a later order replaced this one")
			return nil
		}
		tx.Wake(settings.CertificateChanged)
		_, err = tx.Exec(
			ctx,
			"UPDATE ssl SET edition = gen_random_uuid(), error = NULL, name = $1, chain = $2, key = $3, not_after = $4, renew_at = $5",
			r.Public.Name,
			issued.Chain,
			r.Box.Seal(keyColumn, secret.New(issued.Key)),
			end,
			renewalTime(begin, end),
		)
		if err != nil {
			return fmt.Errorf("store the certificate: %w", err)
		}
		after, err := ReadState(ctx, tx)
		tx.Record(pg.Record{Kind: Kind, Action: "issued", Targets: after.Target(), Before: before.logView(), After: after.logView()})
		return err
	})
}

// logView returns what the log says about a certificate.
func (s State) logView() any {
	return struct {
		Name     *string    `json:"name,omitempty"`
		NotAfter *time.Time `json:"expires_at,omitempty"`
	}{s.Name, s.NotAfter}
}

// renewalTime returns when a certificate is renewed: after two thirds of its lifetime.
func renewalTime(begin, end time.Time) time.Time { return end.Add(-end.Sub(begin) / 3) }

// obtain asks the authority for a certificate for a new key.
func (r *Renewer) obtain(ctx context.Context, email string) (Issued, error) {
	c := acmez.Client{
		Client:           &acme.Client{Directory: r.Directory, HTTPClient: client, UserAgent: "ironplane"},
		ChallengeSolvers: map[string]acmez.Solver{acme.ChallengeTypeHTTP01: solver{r.DB}, acme.ChallengeTypeTLSALPN01: solver{r.DB}},
	}
	account, err := r.account(ctx, &c, email)
	if err != nil {
		return Issued{}, err
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return Issued{}, err
	}
	chains, err := c.ObtainCertificateForSANs(ctx, account, key, []string{r.Public.Name})
	if problem, ok := errors.AsType[acme.Problem](err); ok && problem.Type == acme.ProblemTypeAccountDoesNotExist { // any more
		err = errors.Join(err, r.forgetAccount(ctx, account))
	}
	if err != nil {
		return Issued{}, err
	}
	if len(chains) == 0 {
		return Issued{}, errors.New("the authority returned no certificate")
	}
	return Issued{Chain: string(chains[0].ChainPEM), Key: keyPEM.Reveal()}, nil
}

// newKey returns a new ECDSA key, and its PEM.
func newKey() (crypto.Signer, secret.String, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, secret.String{}, fmt.Errorf("generate a key: %w", err)
	}
	text, err := encodeKey(key)
	return key, text, err
}

func encodeKey(key any) (secret.String, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return secret.String{}, fmt.Errorf("encode a key: %w", err)
	}
	return secret.New(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))), nil
}

func decodeKey(text secret.String) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text.Reveal()))
	if block == nil {
		return nil, errors.New("decode a key: not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("decode a key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("decode a key: it cannot sign")
	}
	return signer, nil
}

// account returns the installation's account at the authority for this email address, and creates it if needed. The
// operator agreed to the authority's terms by ordering the certificate.
func (r *Renewer) account(ctx context.Context, c *acmez.Client, email string) (account acme.Account, err error) {
	account = acme.Account{Status: acme.StatusValid, Contact: []string{"mailto:" + email}}
	var id int64
	var sealed []byte
	err = r.DB.QueryRow(ctx, "SELECT id, location, key FROM acme_account WHERE directory = $1 AND email = $2", r.Directory, email).
		Scan(&id, &account.Location, &sealed)
	if err == nil {
		var key secret.String
		if key, err = r.Box.Open(accountKeyColumn(id), sealed); err != nil {
			return account, err
		}
		account.PrivateKey, err = decodeKey(key)
		return account, err
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return account, fmt.Errorf("read the ACME account: %w", err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return account, err
	}
	account, err = c.NewAccount(ctx, acme.Account{Contact: account.Contact, TermsOfServiceAgreed: true, PrivateKey: key})
	if err != nil {
		return account, fmt.Errorf("create an account at the authority: %w", err)
	}
	return account, r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("callers do not see the account at the authority")
		err := tx.QueryRow(ctx, `INSERT INTO acme_account (directory, email, location) VALUES ($1, $2, $3)
			ON CONFLICT (directory, email) DO UPDATE SET location = excluded.location RETURNING id`, r.Directory, email, account.Location).Scan(&id)
		if err != nil {
			return fmt.Errorf("store the ACME account: %w", err)
		}
		_, err = tx.Exec(ctx, "UPDATE acme_account SET key = $2 WHERE id = $1", id, r.Box.Seal(accountKeyColumn(id), keyPEM))
		return err
	})
}

// forgetAccount deletes an account that the authority no longer knows. The next attempt creates another.
func (r *Renewer) forgetAccount(ctx context.Context, account acme.Account) error {
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("callers do not see the account at the authority")
		_, err := tx.Exec(ctx, "DELETE FROM acme_account WHERE location = $1", account.Location)
		return err
	})
}

func accountKeyColumn(id int64) seal.Location {
	return seal.Location{Table: "acme_account", Column: "key", ID: id}
}

// solver stores the responses to the authority's challenges, which gateways serve.
type solver struct{ db *pg.DB }

// Present implements acmez.Solver.
func (s solver) Present(ctx context.Context, c acme.Challenge) error {
	return s.exec(
		ctx,
		"INSERT INTO acme_challenge (token, type, name, key_auth) VALUES ($1, $2, $3, $4) ON CONFLICT (token) DO UPDATE "+
			"SET type = excluded.type, key_auth = excluded.key_auth",
		c.Token,
		c.Type,
		c.Identifier.Value,
		c.KeyAuthorization,
	)
}

// challengeTTL is how long a challenge is kept at most.
const challengeTTL = "1 day"

// CleanUp implements acmez.Solver. It also deletes old challenges that an interrupted order left behind.
func (s solver) CleanUp(ctx context.Context, c acme.Challenge) error {
	return s.exec(
		context.WithoutCancel(ctx),
		"DELETE FROM acme_challenge WHERE token = $1 OR created_at < now() - interval '"+challengeTTL+"'",
		c.Token,
	)
}

func (s solver) exec(ctx context.Context, sql string, args ...any) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("callers do not see challenges")
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// KeyAuthorization returns the response to an HTTP-01 challenge. The error is pgx.ErrNoRows if the token is unknown.
func (r *Renewer) KeyAuthorization(ctx context.Context, token string) (text string, err error) {
	err = r.DB.QueryRow(ctx, "SELECT key_auth FROM acme_challenge WHERE token = $1 AND type = $2", token, acme.ChallengeTypeHTTP01).Scan(&text)
	return text, err
}

// HandshakeCertificate returns the certificate for a TLS-ALPN-01 challenge of this name (RFC 8737). The error is
// pgx.ErrNoRows if there is no such challenge.
func (r *Renewer) HandshakeCertificate(ctx context.Context, name string) (Issued, error) {
	c := acme.Challenge{Identifier: acme.Identifier{Type: "dns", Value: name}}
	err := r.DB.QueryRow(
		ctx, "SELECT key_auth FROM acme_challenge WHERE name = $1 AND type = $2 ORDER BY created_at DESC LIMIT 1", name,
		acme.ChallengeTypeTLSALPN01,
	).
		Scan(&c.KeyAuthorization)
	if err != nil {
		return Issued{}, err
	}
	created, err := acmez.TLSALPN01ChallengeCert(c)
	if err != nil {
		return Issued{}, fmt.Errorf("create the certificate of a challenge: %w", err)
	}
	key, err := encodeKey(created.PrivateKey)
	return Issued{Chain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: created.Certificate[0]})), Key: key.Reveal()}, err
}
