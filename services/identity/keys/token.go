package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"github.com/ironplane/ironplane/pkg/secret"
)

// NewToken returns 256 random bits as text, for a link or a challenge.
func NewToken() secret.String {
	var bits [32]byte
	rand.Read(bits[:])
	return secret.New(base64.RawURLEncoding.EncodeToString(bits[:]))
}

// HashToken returns the hash under which a random token is stored.
func HashToken(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
