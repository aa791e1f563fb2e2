// Package credentials is what identity and the service that has an account tell each other of who signs in to it.
package credentials

import "time"

const (
	// Path is where the clients service answers who has an address, as ?email= says, or which client it is, as ?id= says.
	Path = "/internal/client/credentials"
	// ChangeKind is the kind of the messages by which identity says what was done with a client's credentials, and WelcomeKind of
	// those by which the clients service has a new account mailed a link to choose a password by.
	ChangeKind  = "credentials"
	WelcomeKind = "welcome"
	// WelcomeTTL is how long such a link is good.
	WelcomeTTL = 72 * time.Hour
	// FreshLoginTTL is how long after a login nobody is asked for the password once more, and how long a confirmed code counts.
	FreshLoginTTL = 10 * time.Minute
	// ConfirmedPath is where identity answers whether a key, whose id follows, has confirmed a second factor's code within the last minutes.
	ConfirmedPath = "/internal/confirmed"
	// UnverifiedPath is where identity answers whether there are admins who could not sign in with a second factor.
	UnverifiedPath = "/internal/unverified-admins"
)

// Confirmed is the answer.
type Confirmed struct {
	Confirmed bool `json:"confirmed"`
}

// Unverified is which of those who are not disabled and have no verified authenticator there are.
type Unverified struct {
	Any            bool `json:"any"`
	WithoutAddress bool `json:"without_address"` // and with a password
}

// Account is an account as somebody who signs in has it; the zero Account is nobody's.
type Account struct {
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	First    string `json:"first"`
	Last     string `json:"last"`
	Email    string `json:"email"`
	Hash     string `json:"hash"` // of the password, as account.Hasher makes it; empty: no login by password
	Disabled bool   `json:"disabled"`
	Require  bool   `json:"require"` // a second factor
	Version  int64  `json:"version"` // of the address and the password
	Claimed  bool   `json:"claimed"` // by whom it is for
	SignedIn bool   `json:"signed_in"`
	Unproven bool   `json:"unproven"` // it has changed its address itself, and nobody has shown since that he reads what comes there
}

// What was done.
const (
	SignedIn = "signed in"
	Linked   = "linked" // by a link that the account made of itself
	Password = "password"
	Rehashed = "rehashed" // the same password
)

// Change is what was done with a client's credentials. Where it is about a password, the message's secret is its hash.
type Change struct {
	Client  int64  `json:"client"`
	Version int64  `json:"version"` // of the credentials that it was done with: where they were changed since, it counts no more
	Action  string `json:"what"`
	Proven  bool   `json:"proven"` // that its mailbox is his who did it
}

// Welcome is a new account.
type Welcome struct {
	Client int64 `json:"client"`
}
