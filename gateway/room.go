package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// roomForAll is how many bytes bodies may take, roomForOwner those of one owner, and roomForKey those of one key.
	roomForAll   = 64 << 20
	roomForOwner = roomForAll / 8
	roomForKey   = roomForOwner / 2
	// roomForAnonymous is the same for all callers without a key, and roomForAddress for one.
	roomForAnonymous = roomForAll / 8
	roomForAddress   = 8 * largestAnonymous
	// roomTime is how long a body waits for others to make room for it.
	roomTime = 2 * time.Second
)

// room bounds the memory that bodies take, in all and by caller. Who waits for much holds up nobody who needs little.
type room struct {
	wait time.Duration

	mu    sync.Mutex
	taken map[any]int64 // by share.who
	freed chan struct{} // closed when some was
}

// share is how much of the room somebody may take.
type share struct {
	who  any // comparable
	most int64
}

// everybody and anonymousCallers have shares, too.
type (
	everybody        struct{}
	anonymousCallers struct{}
	keyID            int64
)

func sharesOf(call *principal.Call) []share {
	all := share{everybody{}, roomForAll}
	if p := call.Principal; p != nil {
		return []share{{keyID(p.KeyID), roomForKey}, {p.Owner, roomForOwner}, all}
	}
	return []share{{networkOf(call.IP), roomForAddress}, {anonymousCallers{}, roomForAnonymous}, all}
}

func newRoom() *room {
	return &room{wait: roomTime, taken: map[any]int64{}, freed: make(chan struct{})}
}

// taking is what one body takes of the room.
type taking struct {
	room   *room
	shares []share
	bytes  int64 // belongs to the room's lock once others may free it
}

// take waits until there is room in every share.
func (t *taking) take(ctx context.Context, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, t.room.wait)
	defer cancel()
	for {
		freed, err := t.try(bytes)
		if err == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return err
		}
	}
}

// try takes the room or says why not, and what is closed when it is worth another try.
func (t *taking) try(bytes int64) (freed <-chan struct{}, err error) {
	m := t.room
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range t.shares {
		if m.taken[s.who]+bytes <= s.most {
			continue
		}
		kind := problem.TooManyRequests
		switch s.who.(type) {
		case everybody, anonymousCallers:
			kind = problem.Unavailable
		}
		err := problem.New(kind, "More than %d bytes of bodies at the same time.", s.most)
		err.RetryAfter = time.Second
		return m.freed, err
	}
	t.bytes = bytes
	for _, s := range t.shares {
		m.taken[s.who] += bytes
	}
	return nil, nil
}

func (t *taking) free() { t.keep(0) }

// keep gives back all but so many bytes.
func (t *taking) keep(bytes int64) {
	m := t.room
	m.mu.Lock()
	defer m.mu.Unlock()
	less := t.bytes - max(bytes, 0)
	if less <= 0 {
		return
	}
	t.bytes -= less
	for _, s := range t.shares {
		if m.taken[s.who] -= less; m.taken[s.who] == 0 {
			delete(m.taken, s.who)
		}
	}
	close(m.freed)
	m.freed = make(chan struct{})
}
