package secret

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Box seals the secrets that a service has to give away again, such as another system's API key. All that it uses is
// derived from the installation's master key and the service's name.
type Box struct {
	service string
	masters []master // the first is used, the others are there for what was sealed before
}

// master is one of the keys that the master key has had.
type master struct {
	value []byte
	id    []byte // says which one it is, and nothing of the value
	seal  cipher.AEAD
}

const (
	// keyID is how many bytes of what is sealed or signed say which master key it was done with.
	keyID = 4
	// shortestMaster is how many random bytes a master key has at least.
	shortestMaster = 32
)

// NewMasterKey makes a master key.
func NewMasterKey() String {
	var bits [shortestMaster]byte
	rand.Read(bits[:])
	return New(base64.StdEncoding.EncodeToString(bits[:]))
}

// NewBox makes a service's box from the master key: at least 32 random bytes in base64. There may be several with
// commas between, of which the first seals and all open.
func NewBox(masterKey String, service string) (*Box, error) {
	b := &Box{service: service}
	for text := range strings.SplitSeq(masterKey.Reveal(), ",") {
		value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(value) < shortestMaster {
			return nil, fmt.Errorf("the master key is not at least %d bytes in base64", shortestMaster) // err would show a part
		}
		m := master{value: value}
		m.id = b.derive(m, "key id", keyID)
		block, err := aes.NewCipher(b.derive(m, "seal", sha256.Size))
		if err != nil {
			return nil, fmt.Errorf("make the sealing key: %w", err)
		}
		if m.seal, err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("make the sealing key: %w", err)
		}
		b.masters = append(b.masters, m)
	}
	return b, nil
}

func (b *Box) derive(m master, purpose string, length int) []byte {
	key, err := hkdf.Key(sha256.New, m.value, nil, "ironplane "+b.service+": "+purpose, length)
	if err != nil {
		panic(err) // only for lengths that are not these
	}
	return key
}

// Place is where a sealed value stands. At any other place it does not open.
type Place struct {
	Table, Column string
	ID            int64 // of the row
}

func (p Place) bytes() []byte {
	place := binary.BigEndian.AppendUint64(nil, uint64(p.ID))
	return append(place, p.Table+"."+p.Column...)
}

// Seal seals a value for its place.
func (b *Box) Seal(at Place, value String) []byte {
	m := b.masters[0]
	return append(bytes.Clone(m.id), m.seal.Seal(nil, nil, []byte(value.Reveal()), at.bytes())...)
}

// Open opens what was sealed for this place.
func (b *Box) Open(at Place, sealed []byte) (String, error) {
	n, err := b.madeWith(sealed)
	if err != nil {
		return String{}, fmt.Errorf("open %s.%s of row %d: %w", at.Table, at.Column, at.ID, err)
	}
	value, err := b.masters[n].seal.Open(nil, nil, sealed[keyID:], at.bytes())
	if err != nil {
		return String{}, fmt.Errorf("open %s.%s of row %d: it was altered, or sealed for another place: %w", at.Table, at.Column, at.ID, err)
	}
	return New(string(value)), nil
}

// ErrOtherKey means that none of the given master keys was used.
var ErrOtherKey = errors.New("it was made with a master key that is not given")

// madeWith is the number of the master key that something was sealed or signed with.
func (b *Box) madeWith(made []byte) (int, error) {
	for n, m := range b.masters {
		if bytes.HasPrefix(made, m.id) {
			return n, nil
		}
	}
	return 0, ErrOtherKey
}

// Signer signs and checks what is said for one purpose.
type Signer struct {
	box  *Box
	keys [][]byte // of the box's master keys
}

// Signer is the one of this purpose.
func (b *Box) Signer(purpose string) *Signer {
	s := &Signer{box: b}
	for _, m := range b.masters {
		s.keys = append(s.keys, b.derive(m, "sign "+purpose, sha256.Size))
	}
	return s
}

// Sign answers the signature of a message.
func (s *Signer) Sign(message []byte) []byte {
	return append(bytes.Clone(s.box.masters[0].id), s.sum(0, message)...)
}

func (s *Signer) sum(n int, message []byte) []byte {
	mac := hmac.New(sha256.New, s.keys[n])
	mac.Write(message)
	return mac.Sum(nil)
}

// Check tells whether the signature is the message's, and how old the master key is that made it: 0 is the one in
// use, 1 the one before it. The error is ErrOtherKey.
func (s *Signer) Check(message, signature []byte) (age int, ok bool, err error) {
	n, err := s.box.madeWith(signature)
	if err != nil {
		return 0, false, err
	}
	return n, hmac.Equal(signature[keyID:], s.sum(n, message)), nil
}
