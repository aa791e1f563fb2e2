// Package credentials has what identity and the clients service exchange about people who sign in as clients.
package credentials

import (
	"context"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

const (
	// Path is where the clients service returns the Account with an address (?email=) or of a client (?id=).
	Path = "/internal/client/credentials"
	// ReachPath is where the clients service returns the Reach of one client (?above=) to another one (?client=).
	ReachPath = "/internal/reach"
	// ChangeKind is the kind of identity's messages about the use of a client's credentials. WelcomeKind is the kind of
	// the messages that have identity mail a link for choosing a password to a new account.
	ChangeKind  = "credentials"
	WelcomeKind = "welcome"
	// WelcomeTTL is how long the link in a welcome mail works.
	WelcomeTTL = 72 * time.Hour
	// FreshLoginTTL is how long after a login no password has to be repeated, and how long a confirmed code counts.
	FreshLoginTTL = 10 * time.Minute
	// ConfirmedPath is where identity tells whether a key has recently confirmed a second factor's code. The key's id
	// follows the path.
	ConfirmedPath = "/internal/confirmed"
	// UnverifiedPath is where identity tells whether there are admins who could not sign in with a second factor.
	UnverifiedPath = "/internal/unverified-admins"
)

// Confirmed is the response at ConfirmedPath.
type Confirmed struct {
	Confirmed bool `json:"confirmed"`
}

// Unverified is the response at UnverifiedPath. It counts enabled admins without a verified authenticator.
type Unverified struct {
	Any            bool `json:"any"`
	WithoutAddress bool `json:"without_address"` // one of them has a password and no email address
}

// Account is a client's account as a login needs it. The zero Account means that there is none.
type Account struct {
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	First    string `json:"first"`
	Last     string `json:"last"`
	Email    string `json:"email"`
	Hash     string `json:"hash"` // of the password, by account.Hasher; empty: no login by password
	Disabled bool   `json:"disabled"`
	Require  bool   `json:"require"` // a second factor
	Version  int64  `json:"version"` // of the address and the password
	Claimed  bool   `json:"claimed"` // its owner has signed in or chosen a password
	SignedIn bool   `json:"signed_in"`
	Language string `json:"language"` // of mails, such as de; empty: the default
	Unproven bool   `json:"unproven"` // the client changed its address, and has not yet proved that mail there reaches it
}

// The actions of a Change.
const (
	SignedIn = "signed in"
	Linked   = "linked" // signed in by a link that the account itself requested
	Password = "password"
	Rehashed = "rehashed" // the same password, with newer parameters
)

// Change tells what was done with a client's credentials. If a password was hashed, the message's secret is the hash.
type Change struct {
	Client  int64  `json:"client"`
	Version int64  `json:"version"` // of the credentials that were used: a Change of an older version has no effect
	Action  string `json:"what"`
	Proven  bool   `json:"proven"` // the person has proved that mail to the account's address reaches them
}

// Welcome asks for a welcome mail to a new account.
type Welcome struct {
	Client int64 `json:"client"`
}

// Reach says how a client reaches another one.
type Reach struct {
	// Whole tells whether it reaches the account by sub links that were made by creation or by the operator. Only then may it act for
	// the account.
	Whole bool `json:"whole"`
	// Link is the id of such a link between the two, or 0 if there are clients between them.
	Link int64 `json:"link,omitempty"`
}

// askTimeout is how long the clients service may take to answer.
const askTimeout = 3 * time.Second

// AskReach asks the clients service how a client reaches another one. The error is a 503 if the service does not say, which one of an
// earlier version may do.
func AskReach(ctx context.Context, peers mesh.Peers, above, client int64) (found Reach, err error) {
	ctx, cancel := peers.Limit(ctx, askTimeout)
	defer cancel()
	err = peers.Ask(ctx, "clients", fmt.Sprintf("%s?above=%d&client=%d", ReachPath, above, client), &found)
	if err != nil {
		err = problem.New(problem.Unavailable, "Clients are unavailable right now. Try again later.").Because(err)
	}
	return found, err
}

// IsVisible reports whether a client sees what belongs to another one: it reaches that one whole. Every client sees its own.
func IsVisible(ctx context.Context, peers mesh.Peers, viewer, client int64) (bool, error) {
	if client == 0 || viewer == client {
		return client != 0, nil
	}
	found, err := AskReach(ctx, peers, viewer, client)
	return found.Whole, err
}
