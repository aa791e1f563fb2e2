package secondfactor

import (
	"testing"
	"time"
)

// The values are those of RFC 6238's appendix B, with their last six digits.
func TestTOTP(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int64]string{59: "287082", 1111111109: "081804", 1234567890: "005924", 20000000000: "353130"} {
		if got := totp([]byte("12345678901234567890"), time.Unix(seconds, 0)); got != want {
			t.Errorf("at %d: got %s, want %s", seconds, got, want)
		}
	}
}
