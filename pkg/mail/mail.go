// Package mail is what mails Ironplane sends of itself, and what each of them can say. The system service sends them; the
// services that have them sent fill in what they are about.
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

// MessageKind is the kind of the messages that have the system service send a mail.
const MessageKind = "mail"

const (
	// ChangedKind is the kind of the messages by which identity has the clients service tell a client what its security hangs on.
	ChangedKind = "account-changed"
	// InstalledKind is the kind of the messages by which pxe has the clients service tell a client how an installation has ended.
	InstalledKind = "install-finished"
	// CopiesPath is where identity answers the addresses of who gets blind copies of what is mailed to clients, and
	// MaxCopies how many at most.
	CopiesPath = "/internal/mail-copies"
	MaxCopies  = 100
	// TemplatesPath is where the system service answers the names of the templates of the type client.
	TemplatesPath = "/internal/email/templates"
)

// Message is what such a message says. Its secret is what the content's members hold that are secrets, by their names, as
// JSON.
type Message struct {
	Template string          `json:"template"` // its name
	Kind     string          `json:"kind"`
	Account  string          `json:"account"` // whose mail it is: /client/5
	To       To              `json:"to"`
	Content  json.RawMessage `json:"content"`
	Expires  time.Time       `json:"expires,omitzero"` // it is not sent later than that
}

// ClientChanged is what a message of ChangedKind says.
type ClientChanged struct {
	Client  int64          `json:"client"`
	Content AccountChanged `json:"content"`
}

// ClientInstalled is what a message of InstalledKind says.
type ClientInstalled struct {
	Client   int64           `json:"client"`
	Template string          `json:"template"` // its name
	Content  InstallFinished `json:"content"`
}

// Send has a mail sent if the unit of work is committed: by the template that comes with Ironplane for such a content.
func Send(ctx context.Context, tx *pg.Tx, outbox *events.Outbox, account string, to To, content Content) error {
	return SendTemplate(ctx, tx, outbox, content.Kind(), account, to, content)
}

// SendTemplate is Send by a template that is of the content's kind.
func SendTemplate(ctx context.Context, tx *pg.Tx, outbox *events.Outbox, template, account string, to To, content Content) error {
	text, err := json.Marshal(content) // in which secrets show as a mark
	if err != nil {
		return fmt.Errorf("encode what a mail is about: %w", err)
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
			return errors.New("encode a mail's secrets") // err would show a part
		}
		confidential = secret.New(string(text))
	}
	return outbox.Send(ctx, tx, MessageKind, m, confidential)
}

// Open is the content of a message with its secrets in their places.
func (m *Message) Open(confidential secret.String) (Content, error) {
	for _, kind := range Kinds {
		if kind.Kind() != m.Kind {
			continue
		}
		content := reflect.New(reflect.TypeOf(kind))
		if err := json.Unmarshal(m.Content, content.Interface()); err != nil {
			return nil, fmt.Errorf("read what a mail is about: %w", err)
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

// To is whom a mail is for.
type To struct {
	To struct {
		Name  string `example:"Ben Miller" doc:"the account's name: a client's first and last, an admin's username"`
		First string `example:"Ben" doc:"a client's"`
		Last  string `example:"Miller" doc:"a client's"`
		Email string `example:"ben@example.com"`
	}
}

// Content is what a mail of one kind is about, besides whom it is for. The fields of the types below are variables of
// templates: doc says to operators what they are, example what a preview shows.
type Content interface{ Kind() string }

// Kinds are the contents of all kinds. A kind has the name of the template that comes with Ironplane for it.
var Kinds = []Content{
	ClientAccountCreated{},
	ClientLinked{},
	AccountChanged{},
	KeyExpires{},
	PasswordReset{},
	TwoFactorCode{},
	InstallFinished{},
	ForClient{},
}

// ForClient is the kind of templates that operators make to write to clients. It has no template of its own.
type ForClient struct{}

// ClientAccountCreated lets the owner of a new account choose a password.
type ClientAccountCreated struct {
	Link    secret.String `example:"https://panel.example.com/auth/password-reset/7#token=…" doc:"where the password is chosen"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"until when the link is good"`
}

// ClientLinked tells a client that another account was linked with it.
type ClientLinked struct {
	By       string `example:"Ann Smith" doc:"whose account it is"`
	Relation string `example:"sub" doc:"sub: the client may be given servers; super: it may see what the other one has"`
}

// AccountChanged tells of what the account's security hangs on.
type AccountChanged struct {
	Changes []string  `example:"The password was changed." doc:"what happened, a sentence each"`
	By      string    `example:"ann" doc:"who did it"`
	At      time.Time `example:"2027-01-02T15:04:00Z" doc:"when"`
	IP      string    `example:"192.0.2.7" doc:"from which address"`
}

// KeyExpires warns of a key that ends soon.
type KeyExpires struct {
	Key     string    `example:"billing system" doc:"the key's name"`
	Expires time.Time `example:"2027-01-02T15:04:00Z" doc:"when it ends"`
}

// PasswordReset is the link for who has forgotten his password.
type PasswordReset struct {
	Link    secret.String `example:"https://panel.example.com/auth/password-reset/7#token=…" doc:"where a new password is chosen"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"until when the link is good"`
	IP      string        `example:"192.0.2.7" doc:"the address that asked for it"`
}

// TwoFactorCode is a code that completes a login or confirms a change.
type TwoFactorCode struct {
	Code    secret.String `example:"123456" doc:"the code"`
	Expires time.Time     `example:"2027-01-02T15:04:00Z" doc:"until when it is good"`
	IP      string        `example:"192.0.2.7" doc:"the address that asked for it"`
}

// InstallFinished tells a client that a machine is ready, or has failed.
type InstallFinished struct {
	Hostname string `example:"web1.example.com" doc:"the machine's name"`
	Address  string `example:"192.0.2.10" doc:"its address"`
	Profile  string `example:"Debian 13" doc:"what was installed"`
	Status   string `example:"installed" doc:"installed or failed"`
}

// The kinds of the contents.
func (ForClient) Kind() string            { return "client" }
func (ClientAccountCreated) Kind() string { return "client-account-created" }
func (ClientLinked) Kind() string         { return "client-linked" }
func (AccountChanged) Kind() string       { return "account-changed" }
func (KeyExpires) Kind() string           { return "key-expires" }
func (PasswordReset) Kind() string        { return "password-reset" }
func (TwoFactorCode) Kind() string        { return "two-factor-code" }
func (InstallFinished) Kind() string      { return "install-finished" }
