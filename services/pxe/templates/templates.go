// Package templates serves profiles, which describe how to install a machine, and their templates: boot scripts,
// preseeds and shell scripts. Package script defines what templates can contain.
package templates

import (
	"slices"
	"sync/atomic"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// Profiles serves profiles and their templates.
type Profiles struct {
	DB             *pg.DB
	EmailTemplates *events.Refs // the system service's email templates that profiles name

	hasMails atomic.Bool // whether the seeded profiles have their email templates
}

// New returns the profiles of a database with the current schema. peers must have the service that owns email templates.
func New(db *pg.DB, peers mesh.Peers) *Profiles {
	return &Profiles{DB: db, EmailTemplates: &events.Refs{
		Owner:     "system",
		Type:      "email/template",
		DB:        db,
		Peers:     peers,
		FindUsage: reference.ProfileUseDescriber("$1 IN (email_template_id, email_failed_id)"),
		Clear:     clearEmailTemplate,
	}}
}

// Routes returns the documented routes.
func (s *Profiles) Routes() []rest.Route {
	return slices.Concat(
		s.shareRoutes(),
		s.profiles(),
		s.bootScripts(),
		s.preseeds(),
		s.shellScripts(),
	)
}
