package principal

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
)

// A key of ours reads ip_, 43 base62 characters (256 random bits), and 6 base62 characters: the CRC-32 of all that
// precedes. The checksum lets the gateway refuse a typo without a look-up, and secret scanners know a leak.
const (
	keyPrefix   = "ip_"
	keyRandom   = 43
	keyChecksum = 6
	keyLength   = len(keyPrefix) + keyRandom + keyChecksum

	// ShortestImport is how many characters a key must have that was not made here.
	ShortestImport = 32
	// LongestKey is how many bytes of a credential are looked at.
	LongestKey = 255
)

// NewKey makes a key.
func NewKey() secret.String {
	var bits [32]byte
	rand.Read(bits[:])
	text := keyPrefix + base62(new(big.Int).SetBytes(bits[:]), keyRandom)
	return secret.New(text + checksum(text))
}

// KeyFormat is what a key's text says of where it comes from.
type KeyFormat int

// The formats.
const (
	Imported KeyFormat = iota // not of our form: made elsewhere
	Issued                    // of our form, with a right checksum
	Broken                    // of our form, with a wrong checksum: nobody has it
)

// FormatOf tells a key's format without looking it up.
func FormatOf(key string) KeyFormat {
	switch {
	case !strings.HasPrefix(key, keyPrefix):
		return Imported
	case len(key) != keyLength || checksum(key[:keyLength-keyChecksum]) != key[keyLength-keyChecksum:]:
		return Broken
	default:
		return Issued
	}
}

// KeyHash is what is kept of a key.
func KeyHash(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

func checksum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), keyChecksum)
}

// base62 writes n in the digits 0–9, A–Z, a–z, padded to a length.
func base62(n *big.Int, length int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := make([]byte, length)
	var digit big.Int
	n = new(big.Int).Set(n)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, big.NewInt(int64(len(digits))), &digit)
		text[i] = digits[digit.Int64()]
	}
	return string(text)
}
