// Package mail defines the mails that Ironplane sends, and their variables. The system service sends them; other
// services fill in the variables.
package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// MessageKind is the kind of messages that make the system service send a mail.
const MessageKind = "mail"

const (
	// ChangedKind is the kind of identity's messages that make the clients service mail a client about changes to its
	// account's security.
	ChangedKind = "account-changed"
	// InstalledKind is the kind of pxe's messages that make the clients service mail a client about a finished install.
	InstalledKind = "install-finished"
	// CopiesPath is where identity returns the addresses that get blind copies of mails to clients. MaxCopies is how
	// many at most.
	CopiesPath = "/internal/mail-copies"
	MaxCopies  = 100
	// AdminWritersPath is where identity returns the admins who can write admins, as AdminWriters.
	AdminWritersPath = "/internal/admin-writers"
	// TemplatesPath is where the system service returns the names of templates of the type client.
	TemplatesPath = "/internal/email/templates"
)

// Message is the content of a message of MessageKind. The message's secret is a JSON object with the content's secrets
// by name.
type Message struct {
	Template string          `json:"template"` // its name
	Kind     string          `json:"kind"`
	Account  string          `json:"account"` // the recipient: /client/5
	To       To              `json:"to"`
	Content  json.RawMessage `json:"content"`
	Expires  time.Time       `json:"expires,omitzero"` // the mail is not sent after this time
}

// ClientChanged is the content of a message of ChangedKind.
type ClientChanged struct {
	Client  int64          `json:"client"`
	Content AccountChanged `json:"content"`
}

// InstallTemplatesPath is the system service's internal path of the built-in email templates about installs, as InstallTemplates.
const InstallTemplatesPath = "/internal/install-email-templates"

// InstallTemplates are the ids of the built-in email templates about installs; nil: it was deleted.
type InstallTemplates struct {
	Finished *int64 `json:"finished"`
	Failed   *int64 `json:"failed"`
}

// ClientInstalled is the content of a message of InstalledKind.
type ClientInstalled struct {
	Client   int64           `json:"client"`
	Template string          `json:"template"` // its name
	Content  InstallFinished `json:"content"`
}

// Send makes the system service send a mail if the unit of work commits, by the built-in template for the content's
// kind.
func Send(ctx context.Context, tx *pg.Tx, outbox *events.Outbox, account string, to To, content Content) error {
	return SendTemplate(ctx, tx, outbox, content.Kind(), account, to, content)
}

// SendTemplate does the same with another template of the content's kind.
func SendTemplate(ctx context.Context, tx *pg.Tx, outbox *events.Outbox, template, account string, to To, content Content) error {
	text, err := json.Marshal(content) // secrets marshal as a mark
	if err != nil {
		return fmt.Errorf("encode a mail's content: %w", err)
	}
	m := Message{Template: template, Kind: content.Kind(), Account: account, To: to, Content: text}
	secrets, values := map[string]string{}, reflect.ValueOf(content)
	for i := range values.NumField() {
		switch value := values.Field(i).Interface().(type) {
		case secret.String:
			secrets[values.Type().Field(i).Name] = value.Reveal()
		case time.Time:
			if values.Type().Field(i).Name == "Expires" {
				m.Expires = value
			}
		}
	}
	var confidential secret.String
	if len(secrets) > 0 {
		text, err := json.Marshal(secrets)
		if err != nil {
			return errors.New("encode a mail's secrets") // err would show a part of them
		}
		confidential = secret.New(string(text))
	}
	return outbox.Send(ctx, tx, MessageKind, m, confidential)
}

// Open returns the content of a message with its secrets.
func (m *Message) Open(confidential secret.String) (Content, error) {
	for _, kind := range Kinds {
		if kind.Kind() != m.Kind {
			continue
		}
		content := reflect.New(reflect.TypeOf(kind))
		if err := json.Unmarshal(m.Content, content.Interface()); err != nil {
			return nil, fmt.Errorf("read a mail's content: %w", err)
		}
		var secrets map[string]string
		if !confidential.IsZero() {
			if err := json.Unmarshal([]byte(confidential.Reveal()), &secrets); err != nil {
				return nil, errors.New("a mail's secrets cannot be read")
			}
		}
		for name, value := range secrets {
			field := content.Elem().FieldByName(name)
			if !field.IsValid() || field.Type() != reflect.TypeFor[secret.String]() {
				return nil, fmt.Errorf("a mail of the kind %s has no secret %s", m.Kind, name)
			}
			field.Set(reflect.ValueOf(secret.New(value)))
		}
		return content.Elem().Interface().(Content), nil
	}
	return nil, fmt.Errorf("there is no kind of mail %s", m.Kind)
}

// AdminWriter is an enabled admin with an address who holds users.admins write.
type AdminWriter struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// To is the recipient of a mail.
type To struct {
	To struct {
		Name  string `example:"Ben Miller" doc:"the account's name: a client's first and last name, or an admin's username"`
		First string `example:"Ben" doc:"a client's first name"`
		Last  string `example:"Miller" doc:"a client's last name"`
		Email string `example:"ben@example.com" doc:"the email address"`

		Language string `json:",omitempty" example:"de" doc:"the language of a client, or empty"`
	}
}

// Content is the content of a mail of one kind, besides the recipient. The fields of the types below are the variables
// of templates: doc describes them to operators, example is shown in previews.
type Content interface{ Kind() string }

// Kinds are the contents of all kinds. A kind has the name of its built-in template.
var Kinds = []Content{
	ClientAccountCreated{},
	ClientLinked{},
	ClientAdoption{},
	AccountChanged{},
	KeyExpires{},
	PasswordReset{},
	TwoFactorCode{},
	FailedLogins{},
	FailedSecondFactor{},
	InstallFinished{},
	ForClient{},
}

// ForClient is the kind of the templates that operators create to write to clients. It has no built-in template.
type ForClient struct {
	Addresses []string `example:"192.0.2.10" doc:"the IP entities of the client, at most 100"`
	Servers   []string `example:"fra1-s4" doc:"the names of the servers that use them"`
}

// ClientAddressesPath is the network service's internal path of a client's IP entities (?client=), as ForClient. RecipientPath is the
// clients service's path of a client as a recipient, as To, and InstallPath the pxe service's path of an install as ClientInstalled. The
// id of the client or install follows them.
const (
	ClientAddressesPath = "/internal/client-addresses"
	RecipientPath       = "/internal/mail-recipient"
	InstallPath         = "/internal/install-mail"
)

// ClientAccountCreated has the link by which a new client chooses a password.
type ClientAccountCreated struct {
	Link    secret.String `example:"https://panel.example.com/auth/password-reset/7#token=…" doc:"the page for choosing a password"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"when the link expires"`
}

// ClientLinked tells a client that another account was linked with it.
type ClientLinked struct {
	By       string `example:"Ann Smith" doc:"the name of the other account"`
	Relation string `example:"sub" doc:"sub: the client can get servers from the other account; super: the client sees what the other account has"`
}

// ClientAdoption asks a client whether an integration can adopt it.
type ClientAdoption struct {
	By      string        `example:"Shop" doc:"the name of the integration that asks"`
	Link    secret.String `example:"https://panel.example.com/client/adopt#client=5&code=…" doc:"the page where the client agrees"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"when the link expires"`
}

// AccountChanged tells about changes to the security of an account.
type AccountChanged struct {
	Changes []string  `example:"The password was changed." doc:"the changes, each as a sentence"`
	By      string    `example:"ann" doc:"the account that made the changes"`
	At      time.Time `example:"2027-01-02T15:04:00Z" doc:"the time of the changes"`
	IP      string    `example:"192.0.2.7" doc:"the IP address of the request"`
}

// KeyExpires warns that an API key expires soon.
type KeyExpires struct {
	Key     string    `example:"billing system" doc:"the key's name"`
	Expires time.Time `example:"2027-01-02T15:04:00Z" doc:"when the key expires"`
}

// PasswordReset has the link for a forgotten password.
type PasswordReset struct {
	Link    secret.String `example:"https://panel.example.com/auth/password-reset/7#token=…" doc:"the page for choosing a new password"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"when the link expires"`
	IP      string        `example:"192.0.2.7" doc:"the IP address of the request"`
}

// TwoFactorCode is a code that completes a login or confirms a change.
type TwoFactorCode struct {
	Code    secret.String `example:"123456" doc:"the code"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"when the code expires"`
	IP      string        `example:"192.0.2.7" doc:"the IP address of the request"`
}

// FailedLogins tells the owner of an account that somebody may be guessing its password.
type FailedLogins struct {
	Count int64     `example:"10" doc:"the number of wrong passwords within a day"`
	At    time.Time `example:"2027-01-02T15:04:00Z" doc:"the time of the last attempt"`
	IP    string    `example:"192.0.2.7" doc:"the IP address of the last attempt"`
}

// FailedSecondFactor tells the owner of an account that somebody sent the right password and a wrong second factor.
type FailedSecondFactor struct {
	At time.Time `example:"2027-01-02T15:04:00Z" doc:"the time of the attempt"`
	IP string    `example:"192.0.2.7" doc:"the IP address of the attempt"`
}

// InstallFinished tells a client that an install has succeeded or failed.
type InstallFinished struct {
	Hostname string `example:"web1.example.com" doc:"the machine's hostname"`
	Address  string `example:"192.0.2.10" doc:"the machine's IP address: the IPv4 address, if it has one"`
	Profile  string `example:"Debian 13" doc:"the name of the profile"`
	Status   string `example:"failed" doc:"installed or failed"`
	Error    string `example:"The installer reported that the disk is full." doc:"why the install failed, or empty"`

	Addresses []string `example:"2001:db8::10" doc:"all IP addresses of the machine"`
	User      string   `example:"root" doc:"the user to sign in as: root, or Administrator on Windows"`
}

// Kind returns the name of the content's type, which templates refer to.
func (ForClient) Kind() string            { return "client" }
func (ClientAccountCreated) Kind() string { return "client-account-created" }
func (ClientLinked) Kind() string         { return "client-linked" }
func (ClientAdoption) Kind() string       { return "client-adoption" }
func (AccountChanged) Kind() string       { return "account-changed" }
func (KeyExpires) Kind() string           { return "key-expires" }
func (PasswordReset) Kind() string        { return "password-reset" }
func (TwoFactorCode) Kind() string        { return "two-factor-code" }
func (FailedLogins) Kind() string         { return "failed-logins" }
func (FailedSecondFactor) Kind() string   { return "failed-second-factor" }
func (InstallFinished) Kind() string      { return "install-finished" }
