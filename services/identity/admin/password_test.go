package admin

import (
	"context"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// A password is not hashed for a caller that may not set one. Otherwise a key without permissions could occupy the slots for
// hashing.
func TestNoHashWithoutPermission(t *testing.T) {
	s := &Service{Settings: &settings.Follower{}} // the zero hasher never has a free slot
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	powerless := &principal.Principal{KeyID: 7, Owner: principal.Owner{Type: principal.Admin, ID: 7}}
	b := &adminBody{Password: secret.New("a long walk in the rain")}
	if err := s.preparePasswords(
		principal.NewContext(ctx, &principal.Call{Principal: powerless}),
		rest.Editing,
		b,
	); err != nil ||
		b.hash != nil {
		t.Errorf("got hashed %v, %v, want false, nil", b.hash != nil, err)
	}
}
