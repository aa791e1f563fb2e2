// Package seal derives the keys with which processes seal and sign from the master key of the installation.
package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// minMasterBytes is the minimal length of a master key, in random bytes.
	minMasterBytes = 32
	// idLength is how many bytes at the beginning of a sealed value or signature tell which master key was used.
	idLength = 4
	// textPrefix begins a process key as text, and textSum bytes of a checksum end it.
	textPrefix = "ironplane-key-1:"
	textSum    = 4
)

// NewMasterKey returns a random master key.
func NewMasterKey() secret.String {
	var bits [minMasterBytes]byte
	rand.Read(bits[:])
	return secret.New(base64.StdEncoding.EncodeToString(bits[:]))
}

// Purpose is the purpose of a derived key.
type Purpose struct {
	Owner string // a service, or a name that several processes share
	Use   string
}

// Sealing returns a service's purpose of sealing.
func Sealing(service string) Purpose { return Purpose{service, "seal"} }

// Signing returns the purpose of signing messages of one topic.
func Signing(owner, topic string) Purpose { return Purpose{owner, "sign " + topic} }

// keyID returns the purpose of the id that tells which master key the owner's keys are derived from.
func keyID(owner string) Purpose { return Purpose{owner, "key id"} }

func (p Purpose) String() string { return p.Owner + ": " + p.Use }

// ProcessKey has one process's derived keys, one for each of its purposes. Neither the master key nor keys for other
// purposes can be computed from them.
type ProcessKey struct {
	process     string
	generations []map[string][]byte // for each master key, the newest first: keys by purpose
}

// Derive returns a process's key. The master key is at least 32 random bytes in base64, or several such keys with commas
// between: the first one seals and signs, and all open and check.
func Derive(masterKey secret.String, process string, purposes ...Purpose) (*ProcessKey, error) {
	k := &ProcessKey{process: process}
	for text := range strings.SplitSeq(masterKey.Reveal(), ",") {
		master, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(master) < minMasterBytes {
			return nil, fmt.Errorf("the master key must be at least %d bytes in base64", minMasterBytes) // err would show a part
		}
		keys := map[string][]byte{}
		for _, p := range purposes {
			keys[p.String()] = derive(master, p, sha256.Size)
			keys[keyID(p.Owner).String()] = derive(master, keyID(p.Owner), idLength)
		}
		k.generations = append(k.generations, keys)
	}
	return k, nil
}

func derive(master []byte, p Purpose, length int) []byte {
	key, err := hkdf.Key(sha256.New, master, nil, "ironplane "+p.String(), length)
	if err != nil {
		panic(err) // impossible for these lengths
	}
	return key
}

// Text returns the key in the form that its process is configured with: one text for each master key, with commas
// between.
func (k *ProcessKey) Text() secret.String {
	var texts []string
	for _, keys := range k.generations {
		content, err := json.Marshal(keys)
		if err != nil {
			panic(err) // impossible for a map of bytes
		}
		texts = append(texts, textPrefix+k.process+":"+base64.RawURLEncoding.EncodeToString(append(content, checksum(k.process, content)...)))
	}
	return secret.New(strings.Join(texts, ","))
}

func checksum(process string, content []byte) []byte {
	sum := sha256.Sum256(slices.Concat([]byte(textPrefix+process+":"), content))
	return sum[:textSum]
}

// ParseProcessKey reads the text of this process's key. Errors show no part of it.
func ParseProcessKey(text secret.String, process string) (*ProcessKey, error) {
	k := &ProcessKey{process: process}
	for part := range strings.SplitSeq(text.Reveal(), ",") {
		owner, encoded, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(part), textPrefix), ":")
		if !ok || !strings.HasPrefix(strings.TrimSpace(part), textPrefix) {
			return nil, fmt.Errorf("a process key must begin with %s", textPrefix)
		}
		content, err := base64.RawURLEncoding.DecodeString(encoded)
		n := len(content) - textSum
		if err != nil || n < 0 || !bytes.Equal(content[n:], checksum(owner, content[:n])) {
			return nil, errors.New("the process key is incomplete or altered: its checksum is wrong")
		}
		if owner != process {
			return nil, fmt.Errorf("this is the key of the process %s, not of %s", owner, process)
		}
		var keys map[string][]byte
		if err := json.Unmarshal(content[:n], &keys); err != nil {
			return nil, errors.New("the process key has invalid content")
		}
		k.generations = append(k.generations, keys)
	}
	return k, nil
}

// key returns the derived key for a purpose and the master key's id, for each master key.
func (k *ProcessKey) key(p Purpose) ([]generation, error) {
	var all []generation
	for _, keys := range k.generations {
		g := generation{id: keys[keyID(p.Owner).String()], key: keys[p.String()]}
		if len(g.id) != idLength || len(g.key) != sha256.Size {
			return nil, fmt.Errorf("the key of the process %s cannot %s for %s: run setup to derive it again", k.process, p.Use, p.Owner)
		}
		all = append(all, g)
	}
	return all, nil
}

// generation is a key that was derived from one of the master keys.
type generation struct {
	id  []byte // identifies the master key without revealing it
	key []byte
}

// ErrOtherKey means that a value was sealed or signed with none of the configured master keys.
var ErrOtherKey = errors.New("the master key that was used for this value is not configured")

// findGeneration returns the index of the generation that sealed or signed a value.
func findGeneration(all []generation, sealed []byte) (int, error) {
	n := slices.IndexFunc(all, func(g generation) bool { return bytes.HasPrefix(sealed, g.id) })
	if n < 0 {
		return 0, ErrOtherKey
	}
	return n, nil
}
