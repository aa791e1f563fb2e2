package tftp

import (
	"testing"
	"time"
)

// Every parsed request is within the bounds.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x01file\x00octet\x00", "\x00\x01/a\\b\x00OCTET\x00blksize\x001468\x00tsize\x000\x00windowsize\x0016\x00timeout\x009\x00",
		"\x00\x02x\x00octet\x00", "\x00\x01x\x00octet\x00blksize\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		r, refused := parse(packet)
		if r != nil && refused != nil {
			t.Errorf("got the request %+v and the refusal %+v, want one of them", r, refused)
		}
		if r != nil && (r.block < minBlockSize || r.block > maxBlockSize || r.window < 1 || r.window > maxWindow ||
			r.timeout <= 0 || r.timeout > maxResendTimeout*time.Second || len(r.options)%2 != 0) {
			t.Errorf("got %+v, want a block size, window and timeout within bounds", r)
		}
	})
}
