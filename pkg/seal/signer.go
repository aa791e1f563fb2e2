package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
)

// Signer signs and checks one kind of thing (HMAC-SHA-256).
type Signer struct{ generations []generation }

// Signer makes the signer of this purpose.
func (k *ProcessKey) Signer(p Purpose) (*Signer, error) {
	generations, err := k.key(p)
	return &Signer{generations}, err
}

// Sign answers the signature of a message.
func (s *Signer) Sign(message []byte) []byte {
	g := s.generations[0]
	return append(bytes.Clone(g.id), g.sum(message)...)
}

func (g generation) sum(message []byte) []byte {
	mac := hmac.New(sha256.New, g.key)
	mac.Write(message)
	return mac.Sum(nil)
}

// Check tells whether the signature is the message's, and how old the master key is that made it: 0 is the one in
// use, 1 the one before it. The error is ErrOtherKey.
func (s *Signer) Check(message, signature []byte) (age int, ok bool, err error) {
	n, err := findGeneration(s.generations, signature)
	if err != nil {
		return 0, false, err
	}
	return n, hmac.Equal(signature[idLength:], s.generations[n].sum(message)), nil
}
