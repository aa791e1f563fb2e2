// Package credentials is what the service that has an account tells identity of who signs in to it.
package credentials

// Path is where the clients service answers who has an address, as ?email= says, or which client it is, as ?id= says.
const Path = "/internal/client/credentials"

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
}
