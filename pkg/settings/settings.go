// Package settings gives processes the settings that operators make. The system service stores them. Each process that
// needs one asks for all of them when it is woken, and now and then. It keeps the last values while the system service
// is away.
package settings

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// ConsolePath is where gateways serve the console, below the API's URL.
const ConsolePath = "/-/console"

// The settings that processes use, with the default that applies until a process has received the value.
var (
	SiteName  = Text{"site_name", "Ironplane"}
	APIURL    = Text{"api_url", ""} // like the next two, its default is the environment variable
	ClientURL = Text{"client_url", ""}
	AdminURL  = Text{"admin_url", ""}

	PasswordLength     = Integer{"security.password_length", 12}
	KeysPerOwner       = Integer{"security.keys_per_owner", 1000}  // 0: no limit
	SessionDuration    = Integer{"security.session_duration", 720} // minutes
	MaxSessionDuration = Integer{"security.session_max", 10080}    // minutes after the login; 0: no limit while the session is used
	VerifyAdmins       = Integer{"security.verify_admins", 0}      // 1: admins need a second factor
	VerifyPasskeys     = Integer{"security.verify_passkeys", 0}    // 1: security keys ask for a PIN or a fingerprint
	KeyInQuery         = Integer{"security.key_in_query", 0}       // 1: API keys are accepted in ?key=

	OwnerRate          = Integer{"limits.owner_rate", 100}
	OwnerBurst         = Integer{"limits.owner_burst", 200}
	OwnerConcurrency   = Integer{"limits.owner_concurrency", 200}
	AddressRate        = Integer{"limits.address_rate", 10}
	AddressBurst       = Integer{"limits.address_burst", 20}
	AddressConcurrency = Integer{"limits.address_concurrency", 50}

	ClientEmails = Integer{"limits.client_emails", 60} // an hour

	Quarantine = Integer{"network.quarantine", 24} // hours; 0: a released IP entity is available at once

	LogDays = Integer{"log.days", 0} // 0: for ever

	EmailDays = Integer{"email.days", 30}

	ISOSize = Integer{"pxe.iso_size", 16} // GiB

	InstallWait = Integer{"pxe.install_wait", 1440} // minutes
	InstallBoot = Integer{"pxe.install_boot", 30}   // minutes
	InstallTime = Integer{"pxe.install_time", 240}  // minutes

	WebhookDays = Integer{"webhook.days", 14}

	SyncChildren = Integer{"pxe.sync_children", 4} // of a file server at a time
)

// Values are the values of settings by slug.
type Values map[string]string

// Text is a setting with a text.
type Text struct{ Slug, Default string }

// In returns the setting's value.
func (s Text) In(v Values) string {
	if text, known := v[s.Slug]; known {
		return text
	}
	return s.Default
}

// Integer is a setting with a whole number, or a checkbox with 0 or 1.
type Integer struct {
	Slug    string
	Default int
}

// In returns the setting's value.
func (s Integer) In(v Values) int {
	text, known := v[s.Slug]
	if !known {
		return s.Default
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return s.Default
}

// Variables are environment variables that initialize settings. They have an effect only when the system service first
// starts on a schema with these settings.
type Variables struct {
	OwnerRate          string `env:"IRONPLANE_OWNER_RATE" for:"system" setting:"limits.owner_rate" doc:"Requests a second of an owner. This variable and the following ones only initialize a setting at the first start; change the setting later."`
	OwnerBurst         string `env:"IRONPLANE_OWNER_BURST" for:"system" setting:"limits.owner_burst" doc:"Requests of an owner that may arrive at once."`
	OwnerConcurrency   string `env:"IRONPLANE_OWNER_CONCURRENCY" for:"system" setting:"limits.owner_concurrency" doc:"Requests in progress of an owner at a gateway."`
	AddressRate        string `env:"IRONPLANE_ADDRESS_RATE" for:"system" setting:"limits.address_rate" doc:"Requests a second of an address without a valid key."`
	AddressBurst       string `env:"IRONPLANE_ADDRESS_BURST" for:"system" setting:"limits.address_burst" doc:"Requests of an address that may arrive at once."`
	AddressConcurrency string `env:"IRONPLANE_ADDRESS_CONCURRENCY" for:"system" setting:"limits.address_concurrency" doc:"Requests in progress of an address at a gateway."`
	KeyInQuery         string `env:"IRONPLANE_KEY_IN_QUERY" for:"system" setting:"security.key_in_query" doc:"1: API keys are accepted in ?key=; 0: they are not."`
	KeysPerOwner       string `env:"IRONPLANE_KEYS_PER_OWNER" for:"system" setting:"security.keys_per_owner" doc:"The number of API keys that an account can have."`
	LogDays            string `env:"IRONPLANE_LOG_DAYS" for:"system" setting:"log.days" doc:"The number of days for which log items are kept."`
}

// NonEmpty returns the variables with a value, by name.
func (v Variables) NonEmpty() map[string]string {
	set, values := map[string]string{}, reflect.ValueOf(v)
	for i := range values.NumField() {
		if text := values.Field(i).String(); text != "" {
			set[values.Type().Field(i).Tag.Get("env")] = text
		}
	}
	return set
}

// WarnIgnored logs a warning for each variable with a value, because it has no effect in this process.
func (v Variables) WarnIgnored(log *slog.Logger) {
	for name := range v.NonEmpty() {
		log.Warn("environment variable ignored: change the setting instead", "variable", name, "setting", FindSlug(name))
	}
}

// FindSlug returns the slug of the setting that a variable initializes.
func FindSlug(name string) string {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Variables]()) {
		if field.Tag.Get("env") == name {
			return field.Tag.Get("setting")
		}
	}
	return ""
}

const (
	// Path is where the system service returns all values to other processes, and identity its copy.
	Path = "/internal/settings"
	// ServiceName is the service that stores the settings.
	ServiceName = "system"
	// Changed is the topic with which the system service wakes others after a setting has changed.
	Changed = "settings"
	// CertificateChanged is the topic with which it wakes gateways after the certificate has changed.
	CertificateChanged = "certificate"
	// interval is how often a process asks without a wake-up. askTimeout is how long a response may take.
	interval   = time.Minute
	askTimeout = 3 * time.Second
)

// Follower keeps a process's copy of the settings.
type Follower struct {
	Peers mesh.Peers
	// LoadLast returns the values from before this process started. It is used while the system service has not
	// responded yet; nil: the defaults are used.
	LoadLast func(context.Context) (Values, error)
	// Woken gets a value when a setting has changed (see wake.Bus); nil: the follower only polls.
	Woken <-chan struct{}
	// Interval is how often the follower asks without a wake-up; 0: every minute.
	Interval time.Duration
	// OnChange is called with changed values before they apply; nil: nothing is called.
	OnChange func(context.Context, Values) error

	values atomic.Pointer[Values]
}

// Values returns the last values.
func (f *Follower) Values() Values {
	if v := f.values.Load(); v != nil {
		return *v
	}
	return nil
}

// Follow asks for the values until ctx ends or a request fails.
func (f *Follower) Follow(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(f.Interval, interval))
	defer tick.Stop()
	for {
		if err := f.Ask(ctx); err != nil {
			return err
		}
		select {
		case <-f.Woken:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ask asks once. If the request fails and there are no values yet, it uses LoadLast.
func (f *Follower) Ask(ctx context.Context) error {
	asking, cancel := f.Peers.Limit(ctx, askTimeout)
	defer cancel()
	var now Values
	away := f.Peers.Ask(asking, ServiceName, Path, &now)
	if away == nil {
		return f.apply(ctx, now)
	}
	if f.values.Load() != nil || f.LoadLast == nil {
		return away
	}
	last, err := f.LoadLast(ctx)
	if err == nil && last != nil {
		err = f.apply(ctx, last)
	}
	return errors.Join(away, err)
}

func (f *Follower) apply(ctx context.Context, now Values) error {
	if before := f.values.Load(); before != nil && maps.Equal(*before, now) {
		return nil
	}
	if f.OnChange != nil {
		if err := f.OnChange(ctx, now); err != nil {
			return err
		}
	}
	f.values.Store(&now)
	return nil
}
