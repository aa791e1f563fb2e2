package setup

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

// watcher is the user of Redis for health checks. It may only send PING.
const watcher = "watcher"

// The rules of Redis' ACL. A user begins with PING alone, and its rights are appended.
const (
	userLine      = "user %s on #%x resetkeys resetchannels -@all +ping%s\n"
	gatewayRights = " %R~entry:* +hmget +time ~rate:* +eval +evalsha +get +set" // entries; and counts limits
	receiveRights = " &events:* +subscribe +unsubscribe"
	entryRights   = " ~entry:* +time +eval +evalsha +hsetnx +hget +hset +pttl +pexpire +del"
	lockoutRights = " ~lockout:* +eval +evalsha +get +incr +decr +pttl +pexpire +del" // failed guesses of keys, codes and passwords
	wakeRights    = receiveRights + " +publish"
	noDefaultUser = "user default reset\n"
)

// redisUsers returns the ACL file of Redis. Each process has a user of its own name, and health checks have the watcher. The
// default user is disabled.
func redisUsers(passwords map[string]secret.String) secret.String {
	rightsByUser := map[string]string{watcher: "", principal.Gateway: gatewayRights + receiveRights}
	for _, service := range product.Services {
		rightsByUser[service.Name] = wakeRights
		if service.Fills {
			rightsByUser[service.Name] += entryRights
		}
		if service.Name == identity.Name || service.Name == clients.Name {
			rightsByUser[service.Name] += lockoutRights
		}
	}
	lines := []string{noDefaultUser}
	for name, password := range passwords {
		lines = append(lines, fmt.Sprintf(userLine, name, sha256.Sum256([]byte(password.Reveal())), rightsByUser[name]))
	}
	slices.Sort(lines)
	return secret.New(strings.Join(lines, ""))
}
