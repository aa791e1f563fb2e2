package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
)

// Signer signs and checks messages for one purpose, by HMAC-SHA-256.
type Signer struct{ generations []generation }

// Signer returns the signer for a purpose.
func (k *ProcessKey) Signer(p Purpose) (*Signer, error) {
	generations, err := k.key(p)
	return &Signer{generations}, err
}

// Sign returns the signature of a message.
func (s *Signer) Sign(message []byte) []byte {
	g := s.generations[0]
	return append(bytes.Clone(g.id), g.sum(message)...)
}

func (g generation) sum(message []byte) []byte {
	mac := hmac.New(sha256.New, g.key)
	mac.Write(message)
	return mac.Sum(nil)
}

// Check tells whether a signature belongs to a message. age is the age of the master key: 0 is the newest one, 1 the one
// before it. The error is ErrOtherKey if no configured master key was used.
func (s *Signer) Check(message, signature []byte) (age int, ok bool, err error) {
	n, err := findGeneration(s.generations, signature)
	if err != nil {
		return 0, false, err
	}
	return n, hmac.Equal(signature[idLength:], s.generations[n].sum(message)), nil
}
