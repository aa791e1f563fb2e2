package account_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Passwords are hashed as docs/operate/security.md says, unless a test asks for less.
func TestDefaultCost(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/operate/security.md")
	testkit.Must(t, err)
	if want := "argon2id with 46 MiB, one pass, one thread and 128 bits of salt"; !strings.Contains(string(text), want) {
		t.Errorf("got a docs/operate/security.md without %q, want it there", want)
	}
	for memory, want := range map[uint32]string{0: "$argon2id$v=19$m=47104,t=1,p=1$", 64: "$argon2id$v=19$m=64,t=1,p=1$"} {
		got, err := account.NewHasher(memory).Hash(t.Context(), secret.New("correct horse"))
		testkit.Must(t, err)
		if !strings.HasPrefix(got, want) {
			t.Errorf("got the hash %s for memory %d, want it to begin with %s", got, memory, want)
		}
		parts := strings.Split(got, "$")
		if salt := parts[4]; len(salt) != 22 { // 16 bytes in base64
			t.Errorf("got the salt %s, want 128 bits", salt)
		}
	}
}
