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

// Renewer orders and renews the certificate of the gateways' public name.
type Renewer struct {
	DB        *pg.DB
	Box       *seal.Box
	Directory string // the URL of the authority's ACME directory; empty: no certificate can be ordered
	Public    Public
}

// Public is where callers reach the API. The zero Public means that no address is configured.
type Public struct {
	Name      string // the host name, for which certificates are ordered
	Authority string // the host name with the port, unless it is the default port of HTTPS
}

// ParsePublic parses the API's URL and checks the URL of the ACME directory. If one of them is empty, it returns the zero
// Public.
func ParsePublic(apiURL, directory string) (Public, error) {
	if directory == "" {
		return Public{}, nil
	}
	u, err := url.Parse(directory)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return Public{}, fmt.Errorf("IRONPLANE_ACME_DIRECTORY is %q, but must begin with https://", directory)
	}
	if apiURL == "" {
		return Public{}, nil
	}
	u, err = url.Parse(apiURL)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
		return Public{}, fmt.Errorf("IRONPLANE_API_URL is %q, but must be a URL such as https://api.example.com", apiURL)
	}
	public := Public{Name: strings.ToLower(u.Hostname()), Authority: u.Host}
	if u.Scheme == "http" { // the port is for HTTP, not for HTTPS
		public.Authority = u.Hostname()
	}
	return public, nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// CanBeCertified reports whether a public authority can issue certificates for the name. It cannot for IP addresses and
// names without a dot.
func (p Public) CanBeCertified() bool {
	_, err := netip.ParseAddr(p.Name)
	return err != nil && strings.Contains(p.Name, ".")
}

// The states of the certificate and its order.
const (
	Off      = "off"      // no certificate was ordered
	Ordering = "ordering" // the first certificate is being obtained
	Valid    = "valid"
	Renewing = "renewing"
	Failed   = "failed" // the last attempt failed; an earlier certificate may still be in use
)

// State is the state of the certificate and its order.
type State struct {
	Version  int64
	Email    *string // the account at the authority; nil: no certificate was ordered
	Required bool
	Order    int64 // the number of the latest order; earlier ones no longer count
	Error    *string
	Name     *string // the certificate's host name; nil: there is no certificate
	NotAfter *time.Time
	renewAt  *time.Time
}

// ReadState returns the state.
func ReadState(ctx context.Context, q pg.Querier) (s State, err error) { return readState(ctx, q, "") }

// LockState returns the state and locks it for the transaction.
func LockState(ctx context.Context, tx *pg.Tx) (s State, err error) {
	return readState(ctx, tx, " FOR UPDATE")
}

// readState returns the state. lock is empty or a SQL locking clause.
func readState(ctx context.Context, q pg.Querier, lock string) (s State, err error) {
	err = q.QueryRow(ctx, "SELECT version, email, required, ordered, error, name, not_after, renew_at FROM ssl"+lock).
		Scan(&s.Version, &s.Email, &s.Required, &s.Order, &s.Error, &s.Name, &s.NotAfter, &s.renewAt)
	if err != nil {
		return s, fmt.Errorf("read the state of the certificate: %w", err)
	}
	return s, nil
}

// Status returns the state as one of Off, Ordering, Valid, Renewing and Failed.
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

// IsDue reports whether a certificate for this name has to be obtained or renewed.
func (s State) IsDue(name string) bool {
	return s.Email != nil && (s.Name == nil || *s.Name != name || !s.renewAt.After(time.Now()))
}

// orderArgs are the arguments of the job.
type orderArgs struct {
	Order int64 `json:"order"`
}

const (
	minBackoff, maxBackoff = 5 * time.Minute, 6 * time.Hour
	// attempts with these pauses take half a year. Operators end an order, not the job.
	attempts = 1000
	// orderTimeout limits one attempt.
	orderTimeout = 5 * time.Minute
)

func backoff(attempt int) time.Duration { return min(minBackoff<<min(attempt-1, 20), maxBackoff) }

// Job obtains or renews the certificate. An order has at most one job.
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

// Order enqueues the job that obtains the certificate.
func (r *Renewer) Order(ctx context.Context, tx *pg.Tx, s State) error {
	job := r.Job()
	return jobs.Enqueue(ctx, tx, &job, orderArgs{s.Order})
}

// Renew enqueues the job if the certificate is due.
func (r *Renewer) Renew(ctx context.Context) error {
	if s, err := ReadState(ctx, r.DB); err != nil || !s.IsDue(r.Public.Name) {
		return err
	}
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the issued certificate is recorded later")
		s, err := LockState(ctx, tx)
		if err != nil || !s.IsDue(r.Public.Name) {
			return err
		}
		return r.Order(ctx, tx, s)
	})
}

// Issued is a certificate with its key. The zero Issued means that there is no certificate.
type Issued struct {
	Chain string `json:"chain,omitempty"` // PEM
	Key   string `json:"key,omitempty"`   // PEM
}

// GatewayState is what gateways need to know about TLS.
type GatewayState struct {
	Edition   string `json:"edition"`             // changes with the certificate
	Required  bool   `json:"required"`            // whether plain HTTP is refused
	Authority string `json:"authority,omitempty"` // the host, and port, to redirect plain HTTP to
	Issued
}

// ReadForGateway returns the state for a gateway. It leaves the certificate out if the gateway knows this edition.
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

var keyColumn = seal.Location{Table: "ssl", Column: "key", ID: 1}

// client is the HTTP client for requests to the authority.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	ForceAttemptHTTP2:     true,
	TLSHandshakeTimeout:   10 * time.Second,
	ResponseHeaderTimeout: 30 * time.Second,
	IdleConnTimeout:       time.Minute,
}}
