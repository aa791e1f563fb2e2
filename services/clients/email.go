package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// EmailResult says that a requested mail is on its way.
type EmailResult struct {
	Type string `json:"type" enum:"success" doc:"Always success."`
	Text string `json:"text" doc:"A sentence that names the template and the recipient."`
}

type emailRequest struct {
	ID        int64 `path:"*"`
	Body      rest.Body[emailBody]
	templates []string       // names of the templates for clients
	content   mail.ForClient // what such a template can show of the client
}

type emailBody struct {
	Type string `json:"type" required:"create" example:"welcome" doc:"The name of an email template of the type client, with or without .tpl."`
}

// askTimeout is how long another service may take to respond.
const askTimeout = 3 * time.Second

func (s *Service) emailRoutes() []rest.Route {
	return []rest.Route{
		rest.Mutation[emailRequest, []EmailResult]{
			Method:  http.MethodPost,
			Path:    "/client/{client_id}/email",
			Guard:   guard.HasOrReseller(permission.UsersClients),
			Name:    "emailClient",
			Summary: "Send a client a mail",
			Doc:     "A client can send `client-account-created` to accounts that it has created. An integration can send mails to its own clients.",
			Effect:  rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
			Prepare: func(ctx context.Context, req *emailRequest) error {
				if callingClient(ctx) != 0 {
					return s.countEmail(ctx)
				}
				ctx, cancel := s.peers.Limit(ctx, askTimeout)
				defer cancel()
				err := s.peers.Ask(ctx, "system", mail.TemplatesPath, &req.templates)
				if errors.Is(err, mesh.ErrUnavailable) {
					return problem.New(problem.Unavailable, "The email templates cannot be loaded right now. Try again.").Because(err)
				}
				if err != nil {
					return err
				}
				err = s.peers.Ask(ctx, "network", fmt.Sprintf("%s?client=%d", mail.ClientAddressesPath, req.ID), &req.content)
				if errors.Is(err, mesh.ErrUnavailable) {
					return problem.New(problem.Unavailable, "The client's IP entities cannot be looked up right now. Try again.").Because(err)
				}
				return nil // a network service of an earlier version refuses the question: the mail names no addresses
			},
			Do: s.emailClient,
		},
	}
}

func (s *Service) emailClient(ctx context.Context, tx *pg.Tx, req emailRequest) ([]EmailResult, error) {
	if caller := callingClient(ctx); caller != 0 {
		if err := checkMailAllowed(ctx, tx, caller, req.ID); err != nil {
			return nil, err
		}
	}
	to, err := lockRecipient(ctx, tx, req.ID)
	if err != nil {
		return nil, err
	}
	if err := checkIntegrationOwns(ctx, tx, req.ID); err != nil {
		return nil, err
	}
	body, err := req.Body.New()
	if err != nil {
		return nil, err
	}
	matches := func(name string) bool {
		return strings.EqualFold(name, body.Type) || strings.EqualFold(name, strings.TrimSuffix(body.Type, ".tpl"))
	}
	if matches(mail.ClientAccountCreated{}.Kind()) {
		return s.sendWelcome(ctx, tx, req.ID, to)
	}
	found := slices.IndexFunc(req.templates, matches)
	if found < 0 {
		hint := "there are no templates yet, create one with `POST /email/template`"
		if callingClient(ctx) != 0 {
			hint = "a client can only send " + mail.ClientAccountCreated{}.Kind()
		} else if len(req.templates) > 0 {
			hint = "the templates are " + strings.Join(req.templates, ", ")
		}
		return nil, problem.Member("/type", "not_found", "is not an email template for clients: %s", hint)
	}
	template := req.templates[found]
	if err := mail.SendTemplate(ctx, tx, s.systemOutbox, template, fmt.Sprintf("/client/%d", req.ID), to, req.content); err != nil {
		return nil, err
	}
	return recordEmail(tx, req.ID, to, template), nil
}

// recordEmail records that a mail was sent, and returns the response.
func recordEmail(tx *pg.Tx, id int64, to mail.To, template string) []EmailResult {
	tx.Record(pg.Record{Kind: "client", Action: "emailed", Targets: []pg.Target{{Type: "client", Noun: "client", ID: id, Name: to.To.Name}},
		Before: struct{}{}, After: map[string]string{"email_template": template}})
	return []EmailResult{{"success", fmt.Sprintf("The mail %s to %s is on its way.", template, to.To.Email)}}
}

// sendWelcome has identity mail the account a link for choosing its first password.
func (s *Service) sendWelcome(ctx context.Context, tx *pg.Tx, id int64, to mail.To) ([]EmailResult, error) {
	var signedIn bool
	if err := tx.QueryRow(ctx, "SELECT signed_in_at IS NOT NULL FROM client WHERE id = $1", id).Scan(&signedIn); err != nil {
		return nil, fmt.Errorf("read whether client %d has signed in: %w", id, err)
	}
	if signedIn {
		return nil, problem.Member(
			"/type",
			"unavailable",
			"cannot be sent to an account that has signed in: use POST /auth/password-reset instead",
		)
	}
	if values := s.settings.Values(); settings.ClientURL.In(values) == "" && settings.APIURL.In(values) == "" {
		return nil, problem.Member(
			"/type",
			"unavailable",
			"cannot be sent because the address for its link is unknown: set IRONPLANE_CLIENT_URL or IRONPLANE_API_URL",
		)
	}
	if err := s.identityOutbox.Send(ctx, tx, credentials.WelcomeKind, credentials.Welcome{Client: id}, secret.String{}); err != nil {
		return nil, err
	}
	return recordEmail(tx, id, to, mail.ClientAccountCreated{}.Kind()), nil
}
