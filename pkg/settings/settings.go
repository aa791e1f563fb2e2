// Package settings is how processes go by what operators set. The system service keeps the settings; each process that
// goes by one asks for all of them when it is woken, and now and then, and keeps the last values while system is away.
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

// The settings that processes go by, with what they are until a process has heard of them: their defaults.
var (
	SiteName  = Text{"site_name", "Ironplane"}
	APIURL    = Text{"api_url", ""} // as the processes are configured, like the next ones
	ClientURL = Text{"client_url", ""}
	AdminURL  = Text{"admin_url", ""}

	PasswordLength     = Integer{"security.password_length", 12}
	KeysPerOwner       = Integer{"security.keys_per_owner", 1000}  // 0: any number
	SessionDuration    = Integer{"security.session_duration", 720} // minutes
	MaxSessionDuration = Integer{"security.session_max", 10080}    // minutes from the login on; 0: as long as it is used
	VerifyAdmins       = Integer{"security.verify_admins", 0}      // 1: admins sign in with a second factor
	VerifyPasskeys     = Integer{"security.verify_passkeys", 0}    // 1: security keys ask for a PIN or a finger
	KeyInQuery         = Integer{"security.key_in_query", 0}       // 1: ?key= is looked at

	OwnerRate          = Integer{"limits.owner_rate", 100}
	OwnerBurst         = Integer{"limits.owner_burst", 200}
	OwnerConcurrency   = Integer{"limits.owner_concurrency", 200}
	AddressRate        = Integer{"limits.address_rate", 10}
	AddressBurst       = Integer{"limits.address_burst", 20}
	AddressConcurrency = Integer{"limits.address_concurrency", 50}

	ClientEmails = Integer{"limits.client_emails", 60} // an hour

	LogDays = Integer{"log.days", 0} // 0: for ever

	EmailDays = Integer{"email.days", 30}

	ISOSize = Integer{"pxe.iso_size", 16} // GiB

	InstallWait = Integer{"pxe.install_wait", 1440} // minutes
	InstallBoot = Integer{"pxe.install_boot", 30}   // minutes
	InstallTime = Integer{"pxe.install_time", 240}  // minutes

	WebhookDays = Integer{"webhook.days", 14}

	SyncChildren = Integer{"pxe.sync_children", 4} // of a file server at a time
)

// Values are what settings are, by their slugs.
type Values map[string]string

// Text is a setting that is a text.
type Text struct{ Slug, Default string }

// In is what the setting is.
func (s Text) In(v Values) string {
	if text, known := v[s.Slug]; known {
		return text
	}
	return s.Default
}

// Integer is a setting that is a whole number, or one of two: a Checkbox.
type Integer struct {
	Slug    string
	Default int
}

// In is what the setting is.
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

// Variables are what the environment says of settings. It counts when the system service starts for the first time on a
// schema that has them.
type Variables struct {
	OwnerRate          string `env:"IRONPLANE_OWNER_RATE" setting:"limits.owner_rate" doc:"at the first start: requests a second of an owner. Since then, as of the next ones, the setting counts"`
	OwnerBurst         string `env:"IRONPLANE_OWNER_BURST" setting:"limits.owner_burst" doc:"the same, at once"`
	OwnerConcurrency   string `env:"IRONPLANE_OWNER_CONCURRENCY" setting:"limits.owner_concurrency" doc:"the same, under way at a gateway"`
	AddressRate        string `env:"IRONPLANE_ADDRESS_RATE" setting:"limits.address_rate" doc:"requests a second of an address without a valid key"`
	AddressBurst       string `env:"IRONPLANE_ADDRESS_BURST" setting:"limits.address_burst" doc:"the same, at once"`
	AddressConcurrency string `env:"IRONPLANE_ADDRESS_CONCURRENCY" setting:"limits.address_concurrency" doc:"the same, under way at a gateway"`
	KeyInQuery         string `env:"IRONPLANE_KEY_IN_QUERY" setting:"security.key_in_query" doc:"whether ?key= is looked at, 0 or 1"`
	KeysPerOwner       string `env:"IRONPLANE_KEYS_PER_OWNER" setting:"security.keys_per_owner" doc:"how many API keys an account can have"`
	LogDays            string `env:"IRONPLANE_LOG_DAYS" setting:"log.days" doc:"how many days the log is kept"`
}

// NonEmpty are those that are set, by their names.
func (v Variables) NonEmpty() map[string]string {
	set, values := map[string]string{}, reflect.ValueOf(v)
	for i := range values.NumField() {
		if text := values.Field(i).String(); text != "" {
			set[values.Type().Field(i).Tag.Get("env")] = text
		}
	}
	return set
}

// WarnIgnored says of each that is set that it does not count in this process.
func (v Variables) WarnIgnored(log *slog.Logger) {
	for name := range v.NonEmpty() {
		log.Warn(
			name+" is ignored: it counts where the system service starts for the first time, and then the setting does",
			"setting",
			FindSlug(name),
		)
	}
}

// FindSlug is the slug of the setting that a variable spoke of.
func FindSlug(name string) string {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Variables]()) {
		if field.Tag.Get("env") == name {
			return field.Tag.Get("setting")
		}
	}
	return ""
}

const (
	// Path is where the system service answers all values to other processes, and identity its copy.
	Path = "/internal/settings"
	// ServiceName is the service that has them.
	ServiceName = "system"
	// Changed is what the system service wakes others with when a setting was changed.
	Changed = "settings"
	// CertificateChanged is what it wakes gateways with when they are to go by another certificate.
	CertificateChanged = "certificate"
	// interval is how often a process asks that nobody wakes, and askTimeout how long it waits.
	interval   = time.Minute
	askTimeout = 3 * time.Second
)

// Follower knows what the settings are.
type Follower struct {
	Peers mesh.Peers
	// Last answers what was last heard before this process began, as long as the system service does not answer; nil:
	// the defaults.
	LoadLast func(context.Context) (Values, error)
	// Woken has a value when a setting was changed: see wake.Bus; nil: it asks by itself alone.
	Woken <-chan struct{}
	// Interval is how often it asks by itself; 0: every minute.
	Interval time.Duration
	// Heard is called with values that are others than before; nil: nothing is.
	OnChange func(context.Context, Values) error

	values atomic.Pointer[Values]
}

// Values are what was last heard.
func (f *Follower) Values() Values {
	if v := f.values.Load(); v != nil {
		return *v
	}
	return nil
}

// Follow asks until ctx ends or nobody answers.
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

// Ask asks once. Where nobody answers, and nothing was heard yet, it goes by what was heard last.
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
