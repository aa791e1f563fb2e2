package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Box encrypts ("seals") the secrets that a service must be able to read again, such as another system's API key.
type Box struct {
	service     string
	key         *ProcessKey
	generations []generation
	seals       []cipher.AEAD // of the generations
}

// Box returns a service's box.
func (k *ProcessKey) Box(service string) (*Box, error) {
	generations, err := k.key(Sealing(service))
	if err != nil {
		return nil, err
	}
	b := &Box{service: service, key: k, generations: generations}
	for _, g := range generations {
		block, err := aes.NewCipher(g.key)
		if err != nil {
			return nil, fmt.Errorf("make the sealing key: %w", err)
		}
		seal, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("make the sealing key: %w", err)
		}
		b.seals = append(b.seals, seal)
	}
	return b, nil
}

// Location is where a sealed value is stored. At any other location it cannot be opened.
type Location struct {
	Table, Column string
	ID            int64 // of the row
}

func (p Location) bytes() []byte {
	location := binary.BigEndian.AppendUint64(nil, uint64(p.ID))
	return append(location, p.Table+"."+p.Column...)
}

// KeyID returns the first bytes of everything that is sealed or signed with the newest key.
func (b *Box) KeyID() []byte { return bytes.Clone(b.generations[0].id) }

// Seal encrypts a value for its location.
func (b *Box) Seal(at Location, value secret.String) []byte {
	return append(bytes.Clone(b.generations[0].id), b.seals[0].Seal(nil, nil, []byte(value.Reveal()), at.bytes())...)
}

// Open decrypts a value that was sealed for this location.
func (b *Box) Open(at Location, sealed []byte) (secret.String, error) {
	n, err := findGeneration(b.generations, sealed)
	if err != nil {
		return secret.String{}, fmt.Errorf("open %s.%s of row %d: %w", at.Table, at.Column, at.ID, err)
	}
	value, err := b.seals[n].Open(nil, nil, sealed[idLength:], at.bytes())
	if err != nil {
		return secret.String{}, fmt.Errorf(
			"open %s.%s of row %d: the value was altered, or sealed for another location: %w",
			at.Table,
			at.Column,
			at.ID,
			err,
		)
	}
	return secret.New(string(value)), nil
}

// Signer returns the service's signer for a topic. The service's definition must name the topic in Signs.
func (b *Box) Signer(topic string) *Signer {
	s, err := b.key.Signer(Signing(b.service, topic))
	if err != nil {
		panic(err) // the service's definition lacks the topic
	}
	return s
}
