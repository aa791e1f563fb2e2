package system

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	processmail "github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/system/mail"
	"github.com/ironplane/ironplane/services/system/setting"
)

// EmailTemplate is a template for mails.
type EmailTemplate struct {
	rest.Versioned
	ID      int64   `json:"id" db:"id"`
	Name    string  `json:"name" db:"name"`
	Type    string  `json:"type" db:"type" ext:"true" doc:"The kind of mail, which decides which variables the template can use: the name of a built-in template, or client."`
	Subject string  `json:"subject" db:"subject" doc:"The template of the subject."`
	Body    string  `json:"body" db:"body" doc:"The template of the plain text part."`
	HTML    *string `json:"html,omitempty" db:"html" ext:"true" doc:"The template of the HTML part. Left out if mails have none."`
}

// emailTemplateBody is the body that creates or edits a template.
type emailTemplateBody struct {
	Name    string  `json:"name" db:"name" required:"create,edit" pattern:"^[A-Za-z0-9][A-Za-z0-9._ -]*$" example:"welcome"`
	Type    string  `json:"type" db:"type" ext:"true" doc:"The kind of mail, which decides which variables the template can use. Default: client."`
	Subject string  `json:"subject" db:"subject" required:"create,edit" max:"1000" example:"Welcome to {{.Site.Name}}" doc:"a template, too"`
	Body    string  `json:"body" db:"body" required:"create,edit" max:"65536" lines:"true" trim:"false" example:"Dear {{.To.Name}}, welcome." doc:"The plain text part, as a Go template. Errors name line and column."`
	HTML    *string `json:"html" db:"html" ext:"true" max:"262144" lines:"true" trim:"false" example:"<p>Dear {{.To.Name}}, welcome.</p>" doc:"The HTML part, as a Go template. null: mails have no HTML part."`
}

// source returns the template as package mail parses it.
func (b *emailTemplateBody) source() mail.Source {
	s := mail.Source{Kind: b.Type, Subject: b.Subject, Text: b.Body}
	if b.HTML != nil {
		s.HTML = *b.HTML
	}
	return s
}

// Resolve checks the templates' syntax and variables.
func (b *emailTemplateBody) Resolve(invalid *problem.Fields) {
	if b.Type == "" {
		b.Type = "client"
	}
	b.source().Parse(invalid)
}

func (s *Service) emailTemplateRoutes() []rest.Route {
	has := guard.Has(permission.SystemEmails)
	return append(rest.Resource[EmailTemplate, emailTemplateBody]{
		Path:  "/email/template",
		ID:    "template_id",
		Noun:  "email template",
		Guard: has,
		Table: "email_template",
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"name": "name", "type": "type"},
		},
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "welcome", "subject": "Welcome", "body": "Welcome to {{.Site.Name}}, {{.To.First}}."}`,
		Check:       s.checkTemplate,
		Delete:      s.deleteTemplate,
		BeforeDelete: func(ctx context.Context, tx *pg.Tx, templates []EmailTemplate) error {
			ids := make([]int64, len(templates))
			for i, t := range templates {
				ids[i] = t.ID
				if err := checkCarrier(ctx, t.Type); err != nil {
					return err
				}
			}
			return s.templateLeases.Acquire(ctx, tx, ids)
		},
	}.Routes(), rest.Read[previewRequest, mail.RenderedEmail]{
		Method:    http.MethodPost,
		Path:      "/email/template/{template_id}/preview",
		Guard:     has,
		Extension: true,
		Name:      "previewEmailTemplate",
		Summary:   "Preview an email template",
		Doc:       "Members of the body replace the stored ones for the preview. client and install replace the sample data. Nothing is saved.",
		Do:        s.preview,
	},
		rest.Read[rest.None, []string]{Path: processmail.TemplatesPath, Guard: guard.Peers("clients"), Do: s.listClientTemplates},
		rest.Read[rest.None, processmail.InstallTemplates]{
			Path: processmail.InstallTemplatesPath, Guard: guard.Peers("pxe"), Do: s.findInstallTemplates,
		})
}

// findInstallTemplates returns the ids of the built-in templates about installs.
func (s *Service) findInstallTemplates(ctx context.Context, _ rest.None) (found processmail.InstallTemplates, err error) {
	err = s.db.QueryRow(ctx, `SELECT (SELECT id FROM email_template WHERE name = 'install-finished'),
		(SELECT id FROM email_template WHERE name = 'install-failed' AND type = 'install-finished')`).
		Scan(&found.Finished, &found.Failed)
	if err != nil {
		return found, fmt.Errorf("find the email templates about installs: %w", err)
	}
	return found, nil
}

// checkTemplate checks who may write a template, and announces the change of one that carries secrets.
func (s *Service) checkTemplate(ctx context.Context, tx *pg.Tx, _ int64, before, b *emailTemplateBody) error {
	if err := checkBuiltIn(before, b); err != nil {
		return err
	}
	types, name, change := []string{b.Type}, b.Name, "created"
	if before != nil {
		types, name, change = append(types, before.Type), before.Name, "changed"
		if reflect.DeepEqual(before, b) {
			return nil
		}
	}
	if err := checkCarrier(ctx, types...); err != nil || !slices.ContainsFunc(types, mail.CarriesSecrets) {
		return err
	}
	return s.mail.Announce(ctx, tx, name, change)
}

// checkCarrier returns an error if a template of one of these types carries secrets, and the caller cannot write admins.
// The author of such a template could read the links and codes by which admins sign in.
func checkCarrier(ctx context.Context, types ...string) error {
	for _, t := range types {
		if mail.CarriesSecrets(t) && !principal.FromContext(ctx).Principal.Holds(permission.UsersAdmins, permission.Write) {
			return problem.New(problem.Forbidden, "The key lacks %s %s. Templates of the type %s carry links or codes by which people sign in.",
				permission.UsersAdmins, permission.Write, t)
		}
	}
	return nil
}

// checkBuiltIn refuses changes to the name and type of a built-in template, because Ironplane finds it by them.
func checkBuiltIn(before, b *emailTemplateBody) error {
	var invalid problem.Fields
	if before != nil && mail.IsBuiltIn(before.Name) {
		if b.Name != before.Name {
			invalid.Add("/name", "read_only", "cannot be changed, because Ironplane finds the template by its name")
		}
		if b.Type != before.Type {
			invalid.Add("/type", "read_only", "cannot be changed, because the type decides which variables Ironplane provides")
		}
	}
	return invalid.Err()
}

// deleteTemplate deletes a template unless it is built in.
func (s *Service) deleteTemplate(ctx context.Context, tx *pg.Tx, t *EmailTemplate) error {
	if mail.IsBuiltIn(t.Name) {
		return problem.New(
			problem.Conflict,
			"Email template %d (%s) is built in and cannot be deleted. Edit it instead.",
			t.ID,
			t.Name,
		)
	}
	if mail.CarriesSecrets(t.Type) {
		if err := s.mail.Announce(ctx, tx, t.Name, "deleted"); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "DELETE FROM email_template WHERE id = $1", t.ID)
	return err
}

// listClientTemplates returns the names of the templates for mails to clients.
func (s *Service) listClientTemplates(ctx context.Context, _ rest.None) ([]string, error) {
	rows, err := s.db.Query(ctx, "SELECT name FROM email_template WHERE type = $1 ORDER BY name LIMIT 1000", processmail.ForClient{}.Kind())
	if err != nil {
		return nil, fmt.Errorf("list the templates for mails to clients: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// previewRequest is the request to preview a template.
type previewRequest struct {
	ID   int64 `path:"*"`
	Body rest.Body[previewBody]
}

// previewBody has the texts to preview instead of the stored ones.
type previewBody struct {
	Subject *string `json:"subject" max:"1000" example:"Welcome" doc:"The subject to preview. Default: the stored one."`
	Body    *string `json:"body" max:"65536" lines:"true" trim:"false" example:"Dear {{.To.Name}}, welcome." doc:"The plain text part to preview. Default: the stored one."`
	HTML    *string `json:"html" max:"262144" lines:"true" trim:"false" doc:"The HTML part to preview. Default: the stored one."`

	Client  *rest.RefID `json:"client" example:"1" doc:"The id of the client to write to. Needs users.clients read. Default: sample data."`
	Install *rest.RefID `json:"install" doc:"The id of the install to write about, for the type install-finished. Needs pxe.installs read. Default: sample data."`
}

// preview renders a template with sample data, or with those of a client or an install.
func (s *Service) preview(ctx context.Context, req previewRequest) (r mail.RenderedEmail, err error) {
	t, err := emailTemplateView.Get(ctx, s.db, req.ID)
	if err != nil {
		return r, err
	}
	sent, err := req.Body.New()
	if err != nil {
		return r, err
	}
	body := emailTemplateBody{Name: t.Name, Type: t.Type, Subject: t.Subject, Body: t.Body, HTML: t.HTML}
	if sent.Subject != nil {
		body.Subject = *sent.Subject
	}
	if sent.Body != nil {
		body.Body = *sent.Body
	}
	if sent.HTML != nil {
		body.HTML = sent.HTML
	}
	var invalid problem.Fields
	checked := body.source().Parse(&invalid)
	if err := invalid.Err(); err != nil {
		return r, err
	}
	site, err := readSite(ctx, s.db)
	if err != nil {
		return r, err
	}
	to, content, err := s.previewData(ctx, t.Type, sent)
	if err != nil {
		return r, err
	}
	return checked.Preview(site, to, content)
}

// previewData returns the recipient and the content of a preview, as far as the body names them.
func (s *Service) previewData(
	ctx context.Context, kind string, b *previewBody,
) (to *processmail.To, content processmail.Content, err error) {
	caller := principal.FromContext(ctx).Principal
	if b.Install != nil {
		if kind != (processmail.InstallFinished{}).Kind() {
			return nil, nil, problem.Member("/install", "conflict", "is only for templates of the type %s", processmail.InstallFinished{}.Kind())
		}
		if !caller.Holds(permission.PXEInstalls, permission.Read) {
			return nil, nil, problem.New(problem.Forbidden, "The key lacks %s %s.", permission.PXEInstalls, permission.Read)
		}
		var found processmail.ClientInstalled
		if err := s.ask(ctx, "pxe", fmt.Sprintf("%s/%d", processmail.InstallPath, *b.Install), &found); err != nil {
			return nil, nil, err
		}
		if found.Content.Hostname == "" {
			return nil, nil, problem.Member("/install", "not_found", "does not exist")
		}
		content = found.Content
	}
	if b.Client == nil {
		return nil, content, nil
	}
	if !caller.Holds(permission.UsersClients, permission.Read) {
		return nil, nil, problem.New(problem.Forbidden, "The key lacks %s %s.", permission.UsersClients, permission.Read)
	}
	to = &processmail.To{}
	if err := s.ask(ctx, "clients", fmt.Sprintf("%s/%d", processmail.RecipientPath, *b.Client), to); err != nil {
		return nil, nil, err
	}
	if to.To.Email == "" {
		return nil, nil, problem.Member("/client", "not_found", "does not exist")
	}
	if kind == (processmail.ForClient{}).Kind() {
		var found processmail.ForClient
		err = s.ask(ctx, "network", fmt.Sprintf("%s?client=%d", processmail.ClientAddressesPath, *b.Client), &found)
		content = found
	}
	return to, content, err
}

// ask asks another service for data of a preview.
func (s *Service) ask(ctx context.Context, service, path string, into any) error {
	ctx, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	if err := s.peers.Ask(ctx, service, path, into); err != nil { // the service is away, or of an earlier version
		return problem.New(problem.Unavailable, "The data of the preview cannot be looked up right now. Try again.").Because(err)
	}
	return nil
}

var emailTemplateView = pg.NewView[EmailTemplate]("email_template")

// readSite returns what templates can show of the installation.
func readSite(ctx context.Context, q pg.Querier) (site mail.Site, err error) {
	values, err := setting.Values(ctx, q)
	if err != nil {
		return site, fmt.Errorf("read the settings for mails: %w", err)
	}
	site.Site.Name, site.Site.APIURL = values["site_name"], values["api_url"]
	site.Site.ClientURL, site.Site.AdminURL = values["client_url"], values["admin_url"]
	return site, nil
}
