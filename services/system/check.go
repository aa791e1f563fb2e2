package system

import (
	"context"
	"errors"
	"strings"

	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system/certificate"
	"github.com/ironplane/ironplane/services/system/setting"
)

// checks returns checks of the settings that the service reads, and of what they name.
func checks(s service.Settings) []health.Check {
	all := []health.Check{
		{Name: "IRONPLANE_API_URL, IRONPLANE_CLIENT_URL and IRONPLANE_ADMIN_URL: valid", Ask: func(context.Context) error {
			_, err := certificate.ParsePublic(s.APIURL, s.ACMEDirectory)
			return errors.Join(setting.CheckURLs(s), err)
		}},
		{Name: "IRONPLANE_ALLOWED_NETWORKS: valid for the system service", Ask: func(context.Context) error {
			return egress.Check(s.AllowedNetworks)
		}},
	}
	if s.SMTP == "" {
		all = append(all, health.Check{Name: "IRONPLANE_SMTP", Ask: func(context.Context) error {
			return health.NotTried("it is not set, so mails are held")
		}, Optional: true})
	} else {
		all = append(all,
			health.Check{Name: "IRONPLANE_SMTP: valid, with a sender", Ask: func(context.Context) error {
				_, err := mailServer(s)
				return err
			}},
			health.Check{Name: "IRONPLANE_SMTP: the server accepts connections", Optional: true, Ask: func(ctx context.Context) error {
				server, err := mailServer(s)
				if err != nil {
					return health.NotTried("the settings are not valid")
				}
				return server.Probe(ctx)
			}})
	}
	if s.License == "" {
		return all
	}
	return append(all,
		health.Check{Name: "IRONPLANE_LICENSE: valid, with a signer", Ask: func(context.Context) error {
			_, err := newLicensing(s)
			return err
		}},
		health.Check{Name: "IRONPLANE_LICENSE: a license can be read", Optional: true, Ask: func(ctx context.Context) error {
			l, err := newLicensing(s)
			if err != nil {
				return health.NotTried("the settings are not valid")
			}
			text, err := l.source.Read(ctx)
			if err == nil && strings.TrimSpace(text) == "" {
				err = errors.New("it is empty")
			}
			return err
		}})
}
