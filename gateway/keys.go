package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/principal/entry"
)

const (
	// memory is how long the gateway goes by what it found, and so how long a revoked key may still work.
	memory = 100 * time.Millisecond
	// remembered bounds how many keys it remembers.
	remembered = 100_000
	// lookupTime is how long finding out may take.
	lookupTime = 10 * time.Second
)

var errNoSuchKey = errors.New("no such key")

// keys turns a key into a principal: from memory, from the entries in Redis, or by asking who owns the key and who
// owns its owner.
type keys struct {
	entries *entry.Store
	ask     func(ctx context.Context, service, path string, into any) error
	known   *otter.Cache[[32]byte, *found]
	imports atomic.Pointer[imports]
	flights singleflight.Group
}

// imports says whether there are keys that were not made here.
type imports struct {
	any   bool
	until time.Time
}

// found is what was found out of a key. It does not change.
type found struct {
	principal *principal.Principal // nil: nobody
	expires   *time.Time
	until     time.Time
}

func newKeys(entries *entry.Store, ask func(ctx context.Context, service, path string, into any) error) *keys {
	return &keys{entries: entries, ask: ask, known: otter.Must(&otter.Options[[32]byte, *found]{
		MaximumSize:      remembered,
		ExpiryCalculator: otter.ExpiryWriting[[32]byte, *found](time.Second),
	})}
}

// principal is who the key stands for. The error is errNoSuchKey where it stands for nobody.
func (k *keys) principal(ctx context.Context, key string) (*principal.Principal, error) {
	if len(key) > principal.LongestKey {
		return nil, errNoSuchKey
	}
	switch principal.FormatOf(key) {
	case principal.Broken:
		return nil, errNoSuchKey
	case principal.Imported:
		if len(key) < principal.ShortestImport {
			return nil, errNoSuchKey
		}
		imported, err := k.anyImported(ctx)
		if err != nil {
			return nil, err
		}
		if !imported {
			return nil, errNoSuchKey
		}
	}
	hash := principal.KeyHash(key)
	f, ok := k.known.GetIfPresent(hash)
	if !ok || time.Now().After(f.until) {
		var err error
		if f, err = k.find(ctx, hash); err != nil {
			return nil, err
		}
	}
	if f.principal == nil || f.expires != nil && !f.expires.After(time.Now()) {
		return nil, errNoSuchKey
	}
	return f.principal, nil
}

func (k *keys) find(ctx context.Context, hash [32]byte) (*found, error) {
	return once(ctx, &k.flights, string(hash[:]), func(ctx context.Context) (*found, error) {
		began := time.Now()
		f, err := k.lookUp(ctx, hash)
		if err != nil {
			return nil, err
		}
		f.until = began.Add(memory)
		k.known.Set(hash, f)
		return f, nil
	})
}

func (k *keys) anyImported(ctx context.Context) (bool, error) {
	if known := k.imports.Load(); known != nil && time.Now().Before(known.until) {
		return known.any, nil
	}
	return once(ctx, &k.flights, entry.ImportsName, func(ctx context.Context) (bool, error) {
		began := time.Now()
		var e entry.Imports
		if err := k.entry(ctx, "identity", entry.ImportsName, &e); err != nil {
			return false, err
		}
		k.imports.Store(&imports{e.Any, began.Add(memory)})
		return e.Any, nil
	})
}

// once runs find once for all who ask for the same name at the same time. It goes on when one of them leaves.
func once[T any](ctx context.Context, flights *singleflight.Group, name string, find func(context.Context) (T, error)) (T, error) {
	result := flights.DoChan(name, func() (any, error) {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		return find(detached)
	})
	select {
	case r := <-result:
		value, _ := r.Val.(T)
		return value, r.Err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

func (k *keys) lookUp(ctx context.Context, hash [32]byte) (*found, error) {
	var key entry.Key
	if err := k.entry(ctx, "identity", entry.KeyName(hex.EncodeToString(hash[:])), &key); err != nil {
		return nil, err
	}
	if key.ID == 0 {
		return &found{}, nil
	}
	var owner entry.Owner
	if err := k.entry(ctx, ownerServices[string(key.Owner.Type)], entry.OwnerName(key.Owner), &owner); err != nil {
		return nil, err
	}
	if !owner.Active {
		return &found{}, nil
	}
	p := &principal.Principal{KeyID: key.ID, Owner: key.Owner, Name: owner.Name, Grants: owner.Grants}
	return &found{principal: p, expires: key.Expires}, nil
}

// entry reads an entry from Redis, or from the service that fills it.
func (k *keys) entry(ctx context.Context, service, name string, into any) error {
	if ok, err := k.entries.Get(ctx, name, into); ok && err == nil {
		return nil
	}
	return k.ask(ctx, service, "/internal/"+name, into)
}
