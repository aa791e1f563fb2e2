package neighbours

import (
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Identity is a double of the identity service.
type Identity struct {
	*Double

	confirmed  map[int64]bool
	admins     map[int64]keycache.Owner
	unverified credentials.Unverified
	copies     []string
	writers    []mail.AdminWriter
}

func newIdentity(t testing.TB, o options) *Identity {
	i := &Identity{Double: newDouble(t, "identity", o), confirmed: map[int64]bool{}, admins: map[int64]keycache.Owner{}, copies: []string{},
		writers: []mail.AdminWriter{}}
	i.handle(credentials.ConfirmedPath+"/{id}", []string{"clients"}, func(r *http.Request) any {
		return credentials.Confirmed{Confirmed: i.confirmed[id(r)]}
	})
	i.handle(credentials.UnverifiedPath, []string{"system"}, func(*http.Request) any { return i.unverified })
	i.handle("/internal/owner/admin/{id}", []string{"system", principal.Gateway}, func(r *http.Request) any { return i.admins[id(r)] })
	i.handle(mail.CopiesPath, []string{"system"}, func(*http.Request) any { return i.copies })
	i.handle(mail.AdminWritersPath, []string{"system"}, func(*http.Request) any { return i.writers })
	return i
}

// Confirm marks a key whose second factor was confirmed within the last minutes.
func (i *Identity) Confirm(key int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.confirmed[key] = true
}

// SetAdmin sets the permissions of an admin.
func (i *Identity) SetAdmin(id int64, admin keycache.Owner) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.admins[id] = admin
}

// SetUnverified sets the admins without a verified second factor.
func (i *Identity) SetUnverified(u credentials.Unverified) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unverified = u
}

// SetCopies sets the admins that get blind copies of mails to clients.
func (i *Identity) SetCopies(addresses ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.copies = append([]string{}, addresses...)
}

// SetAdminWriters sets the admins who can write admins.
func (i *Identity) SetAdminWriters(writers ...mail.AdminWriter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.writers = append([]mail.AdminWriter{}, writers...)
}

// Changed sends a change of a client's credentials to the clients service. hash is the hash of a new password, or empty.
func (i *Identity) Changed(c credentials.Change, hash string) {
	i.t.Helper()
	i.sendChange(c, hash)
}

// SendChanged asks the clients service to mail a client about a change.
func (i *Identity) SendChanged(c mail.ClientChanged) {
	i.t.Helper()
	i.Send("clients", mail.ChangedKind, c, secret.String{})
}

// IdentityContract tests the internal routes of an identity service. All of its admins have a verified second factor, copies get
// blind copies, writer alone can write admins and has an address, and key has confirmed no code.
func IdentityContract(t *testing.T, handler http.Handler, key int64, writer mail.AdminWriter, copies ...string) {
	t.Helper()
	a := asker{t, "identity", handler}
	path := credentials.ConfirmedPath + "/" + decimal(key)
	wantAnswer(a, "clients", path, credentials.Confirmed{})
	wantAnswer(a, "clients", credentials.ConfirmedPath+"/"+decimal(none), credentials.Confirmed{})
	wantAnswer(a, "system", mail.CopiesPath, append([]string{}, copies...))
	wantAnswer(a, "system", mail.AdminWritersPath, []mail.AdminWriter{writer})
	wantAnswer(a, "system", "/internal/owner/admin/"+decimal(none), keycache.Owner{})
	var unverified credentials.Unverified
	a.ask("system", credentials.UnverifiedPath, &unverified)
	a.wantRefused("system", path)
	a.wantRefused("clients", "/internal/owner/admin/"+decimal(none))
	a.wantRefused("clients", mail.CopiesPath)
	a.wantRefused("clients", mail.AdminWritersPath)
	a.wantRefused("clients", credentials.UnverifiedPath)
}
