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

// Kind and Target say in records what was changed.
const Kind = "http.ssl"

// Target is what was changed.
func (s State) Target() []pg.Target {
	return []pg.Target{{Type: "http/ssl", Noun: "certificate", ID: 1, Version: s.Version}}
}

// exec is an attempt to obtain what was ordered. Where it is ordered again meanwhile, or no more, nothing comes of it.
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

// maxError bounds what is shown of an authority's words.
const maxError = 1000

func (r *Renewer) fail(ctx context.Context, ordered orderArgs, why error) error {
	text := []rune(why.Error())
	text = text[:min(len(text), maxError)]
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("there is no other certificate")
		_, err := tx.Exec(ctx, "UPDATE ssl SET error = $2 WHERE ordered = $1 AND email IS NOT NULL", ordered.Order, string(text))
		return err
	})
}

// store puts a new certificate into use.
func (r *Renewer) store(ctx context.Context, ordered orderArgs, issued Issued) error {
	pair, err := tls.X509KeyPair([]byte(issued.Chain), []byte(issued.Key))
	if err != nil {
		return fmt.Errorf("read what was issued: %w", err)
	}
	begin, end := pair.Leaf.NotBefore, pair.Leaf.NotAfter
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		before, err := LockState(ctx, tx)
		if err != nil {
			return err
		}
		if before.Order != ordered.Order || !before.IsDue(r.Public.Name) {
			tx.Unrecorded("another order counts")
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
			return fmt.Errorf("keep the certificate: %w", err)
		}
		after, err := ReadState(ctx, tx)
		tx.Record(pg.Record{Kind: Kind, Action: "issued", Targets: after.Target(), Before: before.logView(), After: after.logView()})
		return err
	})
}

// logView is of a certificate what the log has.
func (s State) logView() any {
	return struct {
		Name     *string    `json:"name,omitempty"`
		NotAfter *time.Time `json:"expires_at,omitempty"`
	}{s.Name, s.NotAfter}
}

// renewalTime is when a certificate is renewed: once two thirds of its life are over.
func renewalTime(begin, end time.Time) time.Time { return end.Add(-end.Sub(begin) / 3) }

// obtain has the authority issue a certificate for a new key.
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
		return Issued{}, errors.New("the authority answers no certificate")
	}
	return Issued{Chain: string(chains[0].ChainPEM), Key: keyPEM.Reveal()}, nil
}

func newKey() (crypto.Signer, secret.String, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, secret.String{}, fmt.Errorf("make a key: %w", err)
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
		return nil, errors.New("the key is no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("decode a key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key does not sign")
	}
	return signer, nil
}

// account is ours at the authority, under this address. It is made where there is none; by ordering a certificate the operator
// has agreed to the authority's terms.
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
		return account, fmt.Errorf("look for the account at the authority: %w", err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return account, err
	}
	account, err = c.NewAccount(ctx, acme.Account{Contact: account.Contact, TermsOfServiceAgreed: true, PrivateKey: key})
	if err != nil {
		return account, fmt.Errorf("make an account at the authority: %w", err)
	}
	return account, r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("an account at the authority is no change of the API's")
		err := tx.QueryRow(ctx, `INSERT INTO acme_account (directory, email, location) VALUES ($1, $2, $3)
			ON CONFLICT (directory, email) DO UPDATE SET location = excluded.location RETURNING id`, r.Directory, email, account.Location).Scan(&id)
		if err != nil {
			return fmt.Errorf("keep the account at the authority: %w", err)
		}
		_, err = tx.Exec(ctx, "UPDATE acme_account SET key = $2 WHERE id = $1", id, r.Box.Seal(accountKeyColumn(id), keyPEM))
		return err
	})
}

// forgetAccount is for one that the authority does not know: the next attempt makes another.
func (r *Renewer) forgetAccount(ctx context.Context, account acme.Account) error {
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("an account at the authority is no change of the API's")
		_, err := tx.Exec(ctx, "DELETE FROM acme_account WHERE location = $1", account.Location)
		return err
	})
}

func accountKeyColumn(id int64) seal.Place {
	return seal.Place{Table: "acme_account", Column: "key", ID: id}
}

// solver has the gateways say what the authority asks them for.
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

// challengeTTL is after how long nobody asks for a challenge any more.
const challengeTTL = "1 day"

// CleanUp implements acmez.Solver. What an order left that was cut short goes, too.
func (s solver) CleanUp(ctx context.Context, c acme.Challenge) error {
	return s.exec(
		context.WithoutCancel(ctx),
		"DELETE FROM acme_challenge WHERE token = $1 OR created_at < now() - interval '"+challengeTTL+"'",
		c.Token,
	)
}

func (s solver) exec(ctx context.Context, sql string, args ...any) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what an authority asks for is no change of the API's")
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// KeyAuthorization is what the authority that asks for this token is answered. The error is pgx.ErrNoRows where none does.
func (r *Renewer) KeyAuthorization(ctx context.Context, token string) (text string, err error) {
	err = r.DB.QueryRow(ctx, "SELECT key_auth FROM acme_challenge WHERE token = $1 AND type = $2", token, acme.ChallengeTypeHTTP01).Scan(&text)
	return text, err
}

// HandshakeCertificate is the certificate for the handshakes by which the authority looks who has this name (RFC 8737). The error is
// pgx.ErrNoRows where none does.
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
		return Issued{}, fmt.Errorf("make a certificate for the authority: %w", err)
	}
	key, err := encodeKey(created.PrivateKey)
	return Issued{Chain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: created.Certificate[0]})), Key: key.Reveal()}, err
}
