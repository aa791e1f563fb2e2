package session

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/person"
)

// DeviceTTL is how long after a login its device is known.
const DeviceTTL = 30 * 24 * time.Hour

// device is the sealed content of a device token.
type device struct {
	Expires     time.Time `json:"expires"`
	Credentials string    `json:"credentials"`
}

// NewDevice returns a token for the device that a person has signed in from. It is sealed for the account, and stored nowhere.
func (s *Service) NewDevice(p person.Person) (string, error) {
	content, err := json.Marshal(device{time.Now().Add(DeviceTTL), describeCredentials(p)})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.Box.Seal(deviceLocation(p.Owner), secret.New(string(content)))), nil
}

// IsKnownDevice reports whether the account has signed in from the token's device within DeviceTTL, and has not changed its password
// since. A token costs the same work if the account does not exist.
func (s *Service) IsKnownDevice(p person.Person, token secret.String) bool {
	sealed, err := base64.RawURLEncoding.DecodeString(token.Reveal())
	if err != nil {
		return false
	}
	content, err := s.Box.Open(deviceLocation(p.Owner), sealed)
	if err != nil {
		return false
	}
	var d device
	err = json.Unmarshal([]byte(content.Reveal()), &d)
	return err == nil && p.Exists() && d.Credentials == describeCredentials(p) && time.Now().Before(d.Expires)
}

// deviceLocation binds a token to its account.
func deviceLocation(owner principal.Owner) seal.Location {
	return seal.Location{Table: string(owner.Type), Column: "device", ID: owner.ID}
}

// describeCredentials returns a text that changes when the account's sessions end: the version of a client's credentials, or a digest
// of an admin's password hash.
func describeCredentials(p person.Person) string {
	if p.Owner.Type == principal.Client {
		return strconv.FormatInt(p.Version, 10)
	}
	sum := sha256.Sum256([]byte(p.Hash))
	return hex.EncodeToString(sum[:])
}
