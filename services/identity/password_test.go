package identity

import (
	"context"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Who may not set a password has none hashed: a powerless key would keep everybody else from having one checked.
func TestNoHashForWhoMayNotSetIt(t *testing.T) {
	s := &Service{settings: &settings.Follower{}} // whose hasher never has room
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	powerless := &principal.Principal{KeyID: 7, Owner: principal.Owner{Type: principal.Admin, ID: 7}}
	b := &adminBody{Password: secret.New("a long walk in the rain")}
	if err := s.preparePasswords(principal.With(ctx, &principal.Call{Principal: powerless}), rest.Editing, b); err != nil || b.hash != nil {
		t.Errorf("hashed %v, %v", b.hash != nil, err)
	}
}
