package mail

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/template"
)

// CarriesSecrets tells whether templates of a kind can show a link or a code by which somebody signs in.
func CarriesSecrets(kind string) bool {
	language := kinds[kind].language
	return language != nil && slices.ContainsFunc(language.Variables(), func(v template.Variable) bool { return v.Secret })
}

// plainSources stand in for stored templates that the rules about secrets refuse, such as one that an earlier version
// accepted. Nobody is locked out by such a template.
var plainSources = map[string]Source{
	mail.ClientAccountCreated{}.Kind(): {
		Subject: "Your account at {{.Site.Name}}",
		Text:    "Choose the password of your account at {{.Site.Name}} before {{.Expires}}:\n\n{{.Link}}\n",
	},
	mail.ClientAdoption{}.Kind(): {
		Subject: "{{.By}} wants to manage your account at {{.Site.Name}}",
		Text:    "If you agree that {{.By}} manages your account at {{.Site.Name}}, open this page before {{.Expires}}:\n\n{{.Link}}\n",
	},
	mail.PasswordReset{}.Kind(): {
		Subject: "Reset your password at {{.Site.Name}}",
		Text:    "Choose a new password for your account at {{.Site.Name}} before {{.Expires}}:\n\n{{.Link}}\n",
	},
	mail.TwoFactorCode{}.Kind(): {
		Subject: "Your code for {{.Site.Name}}",
		Text:    "Your code for {{.Site.Name}} is\n\n    {{.Code}}\n\nIt works once, until {{.Expires}}.\n",
	},
}

// TemplateNotice is a change of a template that carries secrets.
type TemplateNotice struct {
	Template string    `json:"template"` // its name
	Change   string    `json:"change"`   // created, changed or deleted
	By       string    `json:"by"`       // the account's name
	IP       string    `json:"ip"`
	At       time.Time `json:"at"`
}

// NoticeJob returns the job that mails a change of a template to all admins who can write admins. No template decides the
// mail's text, because the change may be one of that template.
func (m *Mailer) NoticeJob() service.Job {
	return service.Job{Kind: "template-notice", Attempts: attempts, Backoff: backoff, Do: jobs.Do(m.sendNotice)}
}

// Announce enqueues a notice of the caller's change of a template.
func (m *Mailer) Announce(ctx context.Context, tx *pg.Tx, name, change string) error {
	caller := principal.FromContext(ctx)
	n := TemplateNotice{Template: name, Change: change, At: time.Now().UTC().Truncate(time.Second)}
	if caller.IP.IsValid() {
		n.IP = caller.IP.Unmap().String()
	}
	if caller.Principal != nil {
		n.By = caller.Principal.Name
	}
	job := m.NoticeJob()
	return jobs.Enqueue(ctx, tx, &job, n)
}

// sendNotice is an attempt of the job.
func (m *Mailer) sendNotice(ctx context.Context, _ *service.Attempt, n TemplateNotice) error {
	var writers []mail.AdminWriter
	if err := m.Peers.Ask(ctx, "identity", mail.AdminWritersPath, &writers); err != nil {
		return fmt.Errorf("ask identity who can write admins: %w", err)
	}
	return m.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the change of the template is recorded")
		site, err := m.ReadSite(ctx, tx)
		if err != nil {
			return err
		}
		for _, to := range writers {
			message := mail.Message{Template: "template-notice", Account: fmt.Sprintf("/admin/%d", to.ID)}
			message.To.To.Name, message.To.To.Email = to.Name, to.Email
			text := n.render(site.Site.Name, to.Name)
			if _, err := m.store(ctx, tx, uuid.NewString(), &message, text, m.firstStatus(), "", false); err != nil {
				return err
			}
		}
		return nil
	})
}

// render returns the mail of the notice.
func (n TemplateNotice) render(site, to string) RenderedEmail {
	var b strings.Builder
	fmt.Fprintf(&b, "Hello %s,\n\nThe email template %s at %s was %s.\n\nWhen: %s\nBy: %s\n", to, n.Template, site, n.Change,
		n.At.Format("2006-01-02 15:04 UTC"), n.By)
	if n.IP != "" {
		fmt.Fprintf(&b, "From: %s\n", n.IP)
	}
	b.WriteString("\nMails by this template carry links or codes by which people sign in. If nobody was to change it,\n" +
		"put the template right, and disable the account that changed it.\n")
	return RenderedEmail{Subject: oneLine(fmt.Sprintf("The email template %s was %s", n.Template, n.Change)), Text: b.String()}
}
