// Package account is what accounts of people have in common: an email address, and a password of which a hash is kept.
package account

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/mail"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
)

// maxPasswordBytes is in bytes.
const maxPasswordBytes = 1024

// CheckEmail notes that a text is no email address.
func CheckEmail(email string, invalid *problem.Fields) {
	if address, err := mail.ParseAddress(email); err != nil || address.Address != email {
		invalid.Add("/email", "invalid", "must be an email address such as anna@example.com")
	}
}

// CheckPassword notes what is wrong with the form of a new password, which has at least so many characters.
func CheckPassword(password secret.String, minLength int, invalid *problem.Fields) {
	text := password.Reveal()
	switch n := utf8.RuneCountInString(text); {
	case n < minLength:
		invalid.Add("/password", "too_short", "must have at least %d characters", minLength)
	case len(text) > maxPasswordBytes:
		invalid.Add("/password", "too_long", "can have at most %d bytes", maxPasswordBytes)
	}
}

// DefaultMemory is what hashing a password takes in KiB, with one pass in one thread: OWASP's first choice.
const DefaultMemory = 46 * 1024

// Hasher hashes passwords with argon2id, a few at a time: each takes memory.
type Hasher struct {
	memory uint32 // in KiB
	slots  chan struct{}
}

const (
	hashPasses  = 1
	hashThreads = 1
	hashLength  = 32
	saltLength  = 16

	maxConcurrent = 4
	hashTimeout   = 10 * time.Second
)

// NewHasher makes one for a process, of so much memory in KiB; 0: DefaultMemory. More at a time than there are processors would take
// memory, and time of others, and be no faster.
func NewHasher(memory uint32) Hasher {
	return Hasher{cmp.Or(memory, DefaultMemory), make(chan struct{}, min(maxConcurrent, runtime.GOMAXPROCS(0)))}
}

// Hash answers the PHC string that is kept of a password.
func (h Hasher) Hash(ctx context.Context, password secret.String) (string, error) {
	salt := make([]byte, saltLength)
	rand.Read(salt)
	sum, err := h.sum(ctx, password, salt, hashPasses, h.memory, hashThreads, hashLength)
	if err != nil {
		return "", err
	}
	return h.encode(salt, sum), nil
}

// parameters begin what is kept of passwords now.
func (h Hasher) parameters() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, h.memory, hashPasses, hashThreads)
}

func (h Hasher) encode(salt, sum []byte) string {
	text := base64.RawStdEncoding.EncodeToString
	return h.parameters() + text(salt) + "$" + text(sum)
}

// IsOutdated tells whether a PHC string was made with other parameters than passwords are hashed with now.
func (h Hasher) IsOutdated(phc string) bool { return !strings.HasPrefix(phc, h.parameters()) }

// DummyHash is the PHC string of a password that nobody knows. To compare with it takes what it takes to compare with another one.
func (h Hasher) DummyHash() string {
	return h.encode(make([]byte, saltLength), make([]byte, hashLength))
}

// Matches tells whether a password is the one that a PHC string was made of.
func (h Hasher) Matches(ctx context.Context, password secret.String, phc string) (bool, error) {
	parts := strings.Split(phc, "$")
	var version int
	var memory, passes uint32
	var threads uint8
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, fmt.Errorf("a stored password is not in argon2id's form")
	}
	_, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &memory, &passes, &threads)
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[4])
	want, sumErr := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || saltErr != nil || sumErr != nil || version != argon2.Version {
		return false, fmt.Errorf("a stored password is not in argon2id's form")
	}
	sum, err := h.sum(ctx, password, salt, passes, memory, threads, uint32(len(want)))
	return err == nil && subtle.ConstantTimeCompare(sum, want) == 1, err
}

func (h Hasher) sum(
	ctx context.Context,
	password secret.String,
	salt []byte,
	passes, memory uint32,
	threads uint8,
	length uint32,
) ([]byte, error) {
	select {
	case h.slots <- struct{}{}:
	case <-time.After(hashTimeout):
		return nil, problem.New(problem.Unavailable, "Too many passwords are being checked right now.")
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
	defer func() { <-h.slots }()
	defer tracing.Step(ctx, "hash a password")()
	return argon2.IDKey([]byte(password.Reveal()), salt, passes, memory, threads, length), nil
}
