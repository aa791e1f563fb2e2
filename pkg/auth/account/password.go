// Package account checks and hashes what accounts of people have in common: an email address and a password.
package account

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

const maxPasswordBytes = 1024

// CheckPassword adds a field error if a new password is too short by the site's settings, or too long.
func CheckPassword(password secret.String, site settings.Values, invalid *problem.Fields) {
	text, minLength := password.Reveal(), settings.PasswordLength.In(site)
	switch n := utf8.RuneCountInString(text); {
	case n < minLength:
		invalid.Add("/password", "too_short", "must have at least %d characters", minLength)
	case len(text) > maxPasswordBytes:
		invalid.Add("/password", "too_long", "can have at most %d bytes", maxPasswordBytes)
	}
}

// DefaultMemory is the memory for hashing one password, in KiB, with one pass and one thread: OWASP's first choice.
const DefaultMemory = 46 * 1024

// Hasher hashes passwords with argon2id. It bounds how many it hashes at the same time, because each needs much memory.
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

// NewHasher returns a Hasher that uses this much memory for each password, in KiB; 0 means DefaultMemory. It hashes at
// most one password a processor at a time: more would need memory and not be faster.
func NewHasher(memory uint32) Hasher {
	return Hasher{cmp.Or(memory, DefaultMemory), make(chan struct{}, min(maxConcurrent, runtime.GOMAXPROCS(0)))}
}

// Hash returns the PHC string that is stored for a password.
func (h Hasher) Hash(ctx context.Context, password secret.String) (string, error) {
	salt := make([]byte, saltLength)
	rand.Read(salt)
	sum, err := h.sum(ctx, password, salt, hashPasses, h.memory, hashThreads, hashLength)
	if err != nil {
		return "", err
	}
	return h.encode(salt, sum), nil
}

// parameters returns the beginning of the PHC strings of passwords that are hashed now.
func (h Hasher) parameters() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, h.memory, hashPasses, hashThreads)
}

func (h Hasher) encode(salt, sum []byte) string {
	text := base64.RawStdEncoding.EncodeToString
	return h.parameters() + text(salt) + "$" + text(sum)
}

// IsOutdated tells whether a PHC string has other parameters than passwords are hashed with now.
func (h Hasher) IsOutdated(phc string) bool { return !strings.HasPrefix(phc, h.parameters()) }

// DummyHash returns a PHC string that no password matches. Comparing with it takes as long as with a real one, so that
// the time of a response does not tell whether an account exists.
func (h Hasher) DummyHash() string {
	return h.encode(make([]byte, saltLength), make([]byte, hashLength))
}

// Matches tells whether a PHC string belongs to a password.
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

// sum computes an Argon2id hash in one of the slots. It fails with a 503 if no slot is free in time.
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
		return nil, problem.New(problem.Unavailable, "Too many passwords are being checked. Try again in a second.")
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
	defer func() { <-h.slots }()
	defer tracing.Step(ctx, "hash a password")()
	return argon2.IDKey([]byte(password.Reveal()), salt, passes, memory, threads, length), nil
}
