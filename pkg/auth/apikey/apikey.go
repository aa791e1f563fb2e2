// Package apikey defines the form of API keys: how they are created, recognized and hashed.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

// An API key that Ironplane issued is ip_, 43 base62 characters (256 random bits), and 6 base62 characters: the CRC-32
// of all before. The checksum lets the gateway refuse a typo without a look-up, and lets secret scanners recognize a
// leaked key.
const (
	prefix         = "ip_"
	random         = 43
	checksumLength = 6
	length         = len(prefix) + random + checksumLength

	// MinImportLength is the minimal number of characters of an imported key.
	MinImportLength = 32
	// MaxLength is how many bytes of a credential are looked at. A longer one is not valid.
	MaxLength = 255
)

// New returns a random API key.
func New() secret.String {
	var bits [32]byte
	rand.Read(bits[:])
	text := prefix + base62(new(big.Int).SetBytes(bits[:]), random)
	return secret.New(text + checksum(text))
}

// Format tells by a key's text where the key comes from.
type Format int

// The formats.
const (
	Imported Format = iota // another system issued it
	Issued                 // Ironplane issued it: the checksum is right
	Broken                 // it has the form of an issued key with a wrong checksum, so it cannot exist
)

// DetectFormat returns a key's format without looking the key up.
func DetectFormat(key string) Format {
	switch {
	case !strings.HasPrefix(key, prefix):
		return Imported
	case len(key) != length || checksum(key[:length-checksumLength]) != key[length-checksumLength:]:
		return Broken
	default:
		return Issued
	}
}

// Hash returns what the database keeps of a key. A key has 256 random bits, so a plain SHA-256 is enough.
func Hash(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

func checksum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), checksumLength)
}

// base62 writes n in the digits 0–9, A–Z, a–z, padded to this many digits.
func base62(n *big.Int, digits int) string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := make([]byte, digits)
	var digit big.Int
	n = new(big.Int).Set(n)
	for i := digits - 1; i >= 0; i-- {
		n.DivMod(n, big.NewInt(int64(len(alphabet))), &digit)
		text[i] = alphabet[digit.Int64()]
	}
	return string(text)
}

// Invalid returns the 401 for a key that is unknown, expired or revoked. The text is the same for all three.
func Invalid() error { return problem.New(problem.Unauthenticated, "The API key is not valid.") }
