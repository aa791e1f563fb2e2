// Package certificate obtains and renews the certificate of the gateways' public name, by ACME (RFC 8555).
package certificate

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
)

// Renewer orders certificates, and keeps the one that is in use.
type Renewer struct {
	DB        *pg.DB
	Box       *seal.Box
	Directory string // of the authority
	Public    Public
}

// Public is where callers reach the API: the zero Public, nobody has said where.
type Public struct {
	Name      string // of the certificate
	Authority string // with the port, if that is not https's own
}

// ParsePublic reads what operators configure: the API's address, and the directory of an authority. Without one of them no certificate
// can be ordered.
func ParsePublic(apiURL, directory string) (Public, error) {
	if directory == "" {
		return Public{}, nil
	}
	u, err := url.Parse(directory)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return Public{}, fmt.Errorf("IRONPLANE_ACME_DIRECTORY is %q, and not https://…", directory)
	}
	if apiURL == "" {
		return Public{}, nil
	}
	u, err = url.Parse(apiURL)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
		return Public{}, fmt.Errorf("IRONPLANE_API_URL is %q, and not https://…", apiURL)
	}
	public := Public{Name: strings.ToLower(u.Hostname()), Authority: u.Host}
	if u.Scheme == "http" { // its port is not that of https
		public.Authority = u.Hostname()
	}
	return public, nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// CanBeCertified tells whether a public authority gives certificates for the name.
func (p Public) CanBeCertified() bool {
	_, err := netip.ParseAddr(p.Name)
	return err != nil && strings.Contains(p.Name, ".")
}

// What becomes of an order.
const (
	Off      = "off"      // nobody ordered one
	Ordering = "ordering" // there is none yet
	Valid    = "valid"
	Renewing = "renewing"
	Failed   = "failed" // the last attempt did; there may be a certificate nevertheless
)

// State is what is known of the certificate and its order.
type State struct {
	Version  int64
	Email    *string // nil: nobody ordered one
	Required bool
	Order    int64 // which one counts
	Error    *string
	Name     *string // nil: there is no certificate
	NotAfter *time.Time
	renewAt  *time.Time
}

// ReadState reads the state.
func ReadState(ctx context.Context, q pg.Querier) (s State, err error) { return readState(ctx, q, "") }

// LockState reads it under its lock.
func LockState(ctx context.Context, tx *pg.Tx) (s State, err error) {
	return readState(ctx, tx, " FOR UPDATE")
}

func readState(ctx context.Context, q pg.Querier, lock string) (s State, err error) {
	err = q.QueryRow(ctx, "SELECT version, email, required, ordered, error, name, not_after, renew_at FROM ssl"+lock).
		Scan(&s.Version, &s.Email, &s.Required, &s.Order, &s.Error, &s.Name, &s.NotAfter, &s.renewAt)
	if err != nil {
		return s, fmt.Errorf("read the state of the certificate: %w", err)
	}
	return s, nil
}

// Status is the state in one word.
func (s State) Status() string {
	switch {
	case s.Email == nil:
		return Off
	case s.Error != nil:
		return Failed
	case s.Name == nil:
		return Ordering
	case !s.renewAt.After(time.Now()):
		return Renewing
	default:
		return Valid
	}
}

// IsDue tells whether the certificate is to be ordered, for this name.
func (s State) IsDue(name string) bool {
	return s.Email != nil && (s.Name == nil || *s.Name != name || !s.renewAt.After(time.Now()))
}

// orderArgs is what a job is given.
type orderArgs struct {
	Order int64 `json:"order"`
}

const (
	minBackoff, maxBackoff = 5 * time.Minute, 6 * time.Hour
	// attempts take half a year: an order is given up by who made it.
	attempts = 1000
	// orderTimeout is how long an attempt may take.
	orderTimeout = 5 * time.Minute
)

func backoff(attempt int) time.Duration { return min(minBackoff<<min(attempt-1, 20), maxBackoff) }

// Job obtains the certificate that is ordered, or renews it. Of the same order there is one.
func (r *Renewer) Job() service.Job {
	return service.Job{
		Kind:     "certificate",
		Timeout:  orderTimeout,
		Attempts: attempts,
		Backoff:  backoff,
		Workers:  1,
		Unique:   true,
		Do:       jobs.Do(r.attempt),
	}
}

// Order has the certificate obtained that is due.
func (r *Renewer) Order(ctx context.Context, tx *pg.Tx, s State) error {
	job := r.Job()
	return jobs.Enqueue(ctx, tx, &job, orderArgs{s.Order})
}

// Renew orders the certificate anew when that is due.
func (r *Renewer) Renew(ctx context.Context) error {
	if s, err := ReadState(ctx, r.DB); err != nil || !s.IsDue(r.Public.Name) {
		return err
	}
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what comes of the order is recorded")
		s, err := LockState(ctx, tx)
		if err != nil || !s.IsDue(r.Public.Name) {
			return err
		}
		return r.Order(ctx, tx, s)
	})
}

// Issued is the certificate that is in use, as gateways are told. The zero Issued: there is none.
type Issued struct {
	Chain string `json:"chain,omitempty"` // PEM
	Key   string `json:"key,omitempty"`   // PEM
}

// GatewayState is what gateways are told.
type GatewayState struct {
	Edition   string `json:"edition"`             // of the certificate
	Required  bool   `json:"required"`            // whether plain HTTP is refused
	Authority string `json:"authority,omitempty"` // where callers are to go instead
	Issued
}

// ReadForGateway answers what gateways are told; where they know this edition already, without the certificate.
func (r *Renewer) ReadForGateway(ctx context.Context, known string) (state GatewayState, err error) {
	state.Authority = r.Public.Authority
	var chain *string
	var key []byte
	err = r.DB.QueryRow(ctx, "SELECT edition::text, required, CASE WHEN edition::text <> $1 THEN chain END, CASE WHEN edition::text <> $1 "+
		"THEN key END FROM ssl", known).
		Scan(&state.Edition, &state.Required, &chain, &key)
	if err != nil {
		return state, fmt.Errorf("read the certificate: %w", err)
	}
	if chain == nil {
		return state, nil
	}
	opened, err := r.Box.Open(keyColumn, key)
	state.Chain, state.Key = *chain, opened.Reveal()
	return state, err
}

var keyColumn = seal.Place{Table: "ssl", Column: "key", ID: 1}

// client speaks to the authority.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	ForceAttemptHTTP2:     true,
	TLSHandshakeTimeout:   10 * time.Second,
	ResponseHeaderTimeout: 30 * time.Second,
	IdleConnTimeout:       time.Minute,
}}
