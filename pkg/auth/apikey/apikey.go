// Package apikey is the form of API keys: how they are made, told apart and kept.
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

// A key of ours reads ip_, 43 base62 characters (256 random bits), and 6 base62 characters: the CRC-32 of all that
// precedes. The checksum lets the gateway refuse a typo without a look-up, and secret scanners know a leak.
const (
	prefix         = "ip_"
	random         = 43
	checksumLength = 6
	length         = len(prefix) + random + checksumLength

	// MinImportLength is how many characters a key must have that was not made here.
	MinImportLength = 32
	// MaxLength is how many bytes of a credential are looked at.
	MaxLength = 255
)

// New makes a key.
func New() secret.String {
	var bits [32]byte
	rand.Read(bits[:])
	text := prefix + base62(new(big.Int).SetBytes(bits[:]), random)
	return secret.New(text + checksum(text))
}

// Format is what a key's text says of where it comes from.
type Format int

// The formats.
const (
	Imported Format = iota // not of our form: made elsewhere
	Issued                 // of our form, with a right checksum
	Broken                 // of our form, with a wrong checksum: nobody has it
)

// DetectFormat tells a key's format without looking it up.
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

// Hash is what is kept of a key.
func Hash(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

func checksum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), checksumLength)
}

// base62 writes n in the digits 0–9, A–Z, a–z, padded to a length.
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

// Invalid is the one answer to a key that is unknown, expired or revoked.
func Invalid() error { return problem.New(problem.Unauthenticated, "The API key is not valid.") }
