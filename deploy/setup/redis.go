package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
)

// watcher is the user of Redis who finds out whether it is well, and may do nothing else.
const watcher = "watcher"

// What a user of Redis may do, as its ACL says it: nothing at first, then what is added.
const (
	user   = "user %s on #%x resetkeys resetchannels -@all +ping%s\n"
	reads  = " %R~entry:* +hmget +time ~rate:* +eval +evalsha +get +set" // entries; and counts limits
	hears  = " &events:* +subscribe +unsubscribe"
	fills  = " ~entry:* +time +eval +evalsha +hsetnx +hget +hset +pttl +pexpire +del"
	guards = " ~lockout:* +eval +evalsha +get +incr +decr +pttl +pexpire +del" // what is guessed
	wakes  = hears + " +publish"
	nobody = "user default reset\n"
)

// redisUsers is the file of Redis' users: each process by its own name, and the watcher. No other gets in.
func redisUsers(passwords map[string]secret.String) secret.String {
	rights := map[string]string{watcher: "", principal.Gateway: reads + hears}
	for _, service := range product.Services {
		rights[service.Name] = wakes
		if service.Fills {
			rights[service.Name] += fills
		}
		if service.Name == identity.Name || service.Name == clients.Name {
			rights[service.Name] += guards
		}
	}
	lines := []string{nobody}
	for name, password := range passwords {
		lines = append(lines, fmt.Sprintf(user, name, sha256.Sum256([]byte(password.Reveal())), rights[name]))
	}
	slices.Sort(lines)
	return secret.New(strings.Join(lines, ""))
}
