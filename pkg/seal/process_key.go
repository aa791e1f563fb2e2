// Package seal derives, from the master key of an installation, what each process seals and signs with.
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
	// minMasterBytes is how many random bytes a master key has at least.
	minMasterBytes = 32
	// idLength is how many bytes of what is sealed or signed say which master key it was done with.
	idLength = 4
	// textPrefix begins a process key as text, textSum bytes of a checksum end it.
	textPrefix = "ironplane-key-1:"
	textSum    = 4
)

// NewMasterKey makes a master key.
func NewMasterKey() secret.String {
	var bits [minMasterBytes]byte
	rand.Read(bits[:])
	return secret.New(base64.StdEncoding.EncodeToString(bits[:]))
}

// Purpose is what one derived key is for.
type Purpose struct {
	Owner string // whose it is: a service's, or what processes share
	Use   string
}

// Sealing is a service's purpose of sealing.
func Sealing(service string) Purpose { return Purpose{service, "seal"} }

// Signing is the purpose of signing one kind of thing.
func Signing(owner, topic string) Purpose { return Purpose{owner, "sign " + topic} }

// keyID is the purpose of saying which master key the owner's keys are derived from.
func keyID(owner string) Purpose { return Purpose{owner, "key id"} }

func (p Purpose) String() string { return p.Owner + ": " + p.Use }

// ProcessKey is what one process holds of the installation's master key: a key for each of its purposes. From these
// nobody can work out the master key, or a key for another purpose.
type ProcessKey struct {
	process     string
	generations []map[string][]byte // the keys by their purposes, of each master key; the first is the one in use
}

// Derive makes a process' key from the master key: at least 32 random bytes in base64. There may be several with commas
// between, of which the first seals and signs, and all open.
func Derive(masterKey secret.String, process string, purposes ...Purpose) (*ProcessKey, error) {
	k := &ProcessKey{process: process}
	for text := range strings.SplitSeq(masterKey.Reveal(), ",") {
		master, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(master) < minMasterBytes {
			return nil, fmt.Errorf("the master key is not at least %d bytes in base64", minMasterBytes) // err would show a part
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
		panic(err) // only for lengths that are not these
	}
	return key
}

// Text is the key as its process is told it: one text for each master key, with commas between.
func (k *ProcessKey) Text() secret.String {
	var texts []string
	for _, keys := range k.generations {
		content, err := json.Marshal(keys)
		if err != nil {
			panic(err) // not for a map of bytes
		}
		texts = append(texts, textPrefix+k.process+":"+base64.RawURLEncoding.EncodeToString(append(content, checksum(k.process, content)...)))
	}
	return secret.New(strings.Join(texts, ","))
}

func checksum(process string, content []byte) []byte {
	sum := sha256.Sum256(slices.Concat([]byte(textPrefix+process+":"), content))
	return sum[:textSum]
}

// ParseProcessKey reads the text of the key of this process. No error shows a part of it.
func ParseProcessKey(text secret.String, process string) (*ProcessKey, error) {
	k := &ProcessKey{process: process}
	for part := range strings.SplitSeq(text.Reveal(), ",") {
		owner, encoded, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(part), textPrefix), ":")
		if !ok || !strings.HasPrefix(strings.TrimSpace(part), textPrefix) {
			return nil, fmt.Errorf("it is no key of a process, which begins with %s", textPrefix)
		}
		content, err := base64.RawURLEncoding.DecodeString(encoded)
		n := len(content) - textSum
		if err != nil || n < 0 || !bytes.Equal(content[n:], checksum(owner, content[:n])) {
			return nil, errors.New("it is not whole: its checksum is wrong")
		}
		if owner != process {
			return nil, fmt.Errorf("it is the key of the process %s, and this is %s", owner, process)
		}
		var keys map[string][]byte
		if err := json.Unmarshal(content[:n], &keys); err != nil {
			return nil, errors.New("its content is not that of a key")
		}
		k.generations = append(k.generations, keys)
	}
	return k, nil
}

// key is the key for a purpose, and the id of the master key, of each generation.
func (k *ProcessKey) key(p Purpose) ([]generation, error) {
	var all []generation
	for _, keys := range k.generations {
		g := generation{id: keys[keyID(p.Owner).String()], key: keys[p.String()]}
		if len(g.id) != idLength || len(g.key) != sha256.Size {
			return nil, fmt.Errorf("the key of the process %s has none to %s with for %s: derive it anew", k.process, p.Use, p.Owner)
		}
		all = append(all, g)
	}
	return all, nil
}

// generation is a derived key of one of the master keys that there have been.
type generation struct {
	id  []byte // says which one, and nothing of the value
	key []byte
}

// ErrOtherKey means that none of the given master keys was used.
var ErrOtherKey = errors.New("it was made with a master key that is not given")

// findGeneration is the number of the generation that something was sealed or signed with.
func findGeneration(all []generation, sealed []byte) (int, error) {
	n := slices.IndexFunc(all, func(g generation) bool { return bytes.HasPrefix(sealed, g.id) })
	if n < 0 {
		return 0, ErrOtherKey
	}
	return n, nil
}
