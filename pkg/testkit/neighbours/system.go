package neighbours

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/settings"
)

// System is a double of the system service.
type System struct {
	*Double

	integrations, emailTemplates *items
	values                       settings.Values
	templates                    []string
	installTemplates             mail.InstallTemplates
}

func newSystem(t testing.TB, o options) *System {
	s := &System{Double: newDouble(t, "system", o), values: settings.Values{}, templates: []string{}}
	s.integrations = s.handleRefs("integration", "integration", "clients", "identity")
	s.emailTemplates = s.handleRefs("email/template", "email template", "pxe")
	s.handle(settings.Path, []string{"gateway", "clients", "identity", "network", "pxe"}, func(*http.Request) any { return s.values })
	s.handle(mail.TemplatesPath, []string{"clients"}, func(*http.Request) any { return s.templates })
	s.handle(mail.InstallTemplatesPath, []string{"pxe"}, func(*http.Request) any { return s.installTemplates })
	return s
}

// SetInstallTemplates sets the ids of the email templates about installs.
func (s *System) SetInstallTemplates(finished, failed int64) {
	s.SetEmailTemplate(finished, "install-finished")
	s.SetEmailTemplate(failed, "install-failed")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installTemplates = mail.InstallTemplates{Finished: &finished, Failed: &failed}
}

// SetSetting sets the stored value of a setting. Other services fetch it.
func (s *System) SetSetting(slug, value string) {
	s.mu.Lock()
	s.values = maps.Clone(s.values)
	s.values[slug] = value
	s.mu.Unlock()
	s.wake()
}

// SetTemplates sets the templates for mails to clients.
func (s *System) SetTemplates(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates = append([]string{}, names...)
}

// SetEmailTemplate creates or renames an email template. Readers of its changes are notified.
func (s *System) SetEmailTemplate(id int64, name string) {
	s.t.Helper()
	s.emailTemplates.set(id, name, nil, nil, map[string]any{"id": id, "name": name})
}

// DeleteEmailTemplate deletes an email template. Readers of its changes are notified.
func (s *System) DeleteEmailTemplate(id int64) {
	s.t.Helper()
	s.emailTemplates.remove(id, map[string]any{"id": id})
}

// SetIntegration creates or renames an integration. Readers of its changes are notified.
func (s *System) SetIntegration(id int64, name string) {
	s.t.Helper()
	s.integrations.set(id, name, map[string]any{"grants": []string{}}, nil, map[string]any{"id": id, "name": name})
}

// DeleteIntegration deletes an integration. Readers of its changes are notified.
func (s *System) DeleteIntegration(id int64) {
	s.t.Helper()
	s.integrations.remove(id, map[string]any{"id": id})
}

// Mail is a mail that the service under test has sent through system.
type Mail struct {
	mail.Message

	Opened mail.Content
}

// Mails returns the mails to an address.
func (s *System) Mails(address string) (mails []Mail) {
	s.t.Helper()
	for _, m := range s.Received() {
		is := Mail{}
		if m.Kind != mail.MessageKind {
			continue
		}
		if err := json.Unmarshal(m.Content, &is.Message); err != nil {
			s.t.Fatalf("a message to system: %v", err)
		}
		if is.To.To.Email != address {
			continue
		}
		var err error
		if is.Opened, err = is.Open(m.Secret); err != nil {
			s.t.Fatalf("a mail to %s: %v", address, err)
		}
		mails = append(mails, is)
	}
	return mails
}

// SystemContract tests the internal routes of a system service with this integration and these templates for mails to clients.
func SystemContract(t *testing.T, handler http.Handler, integration int64, name string, templates ...string) {
	t.Helper()
	a := asker{t, "system", handler}
	wantAnswer(a, "clients", mail.TemplatesPath, append([]string{}, templates...))
	a.wantRefused("network", mail.TemplatesPath)
	for _, service := range []string{"gateway", "clients", "identity", "network", "pxe"} {
		var values settings.Values
		a.ask(service, settings.Path, &values)
	}
	a.wantRefused("metrics", settings.Path)
	for _, reader := range []string{"clients", "identity"} {
		a.wantRef(reader, "integration", integration, name)
		a.wantNoRef(reader, "integration", none)
		a.wantChange(reader, "integration", pg.Created, "integration", integration)
	}
	a.wantRefused("network", refPath("integration", integration))
	a.wantNoRef("pxe", "email/template", none)
}
