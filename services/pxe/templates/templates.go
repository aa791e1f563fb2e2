// Package templates serves profiles, which are ways to install a machine, and the templates that profiles put together: boot
// scripts, preseeds and shell scripts. What templates can show is in its package script.
package templates

import (
	"slices"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// Profiles serves profiles and their templates.
type Profiles struct {
	DB             *pg.DB
	EmailTemplates *events.Refs // of the system service, which profiles name
}

// New makes the profiles of a migrated schema. peers has the service that owns email templates.
func New(db *pg.DB, peers mesh.Peers) *Profiles {
	return &Profiles{DB: db, EmailTemplates: &events.Refs{
		Owner:   "system",
		Type:    "email/template",
		DB:      db,
		Peers:   peers,
		Uses:    reference.ProfilesWhere("email_template_id = $1"),
		Cleared: clearEmailTemplate,
	}}
}

// Routes returns the documented routes.
func (s *Profiles) Routes() []rest.Route {
	return slices.Concat(
		s.shares(),
		[]rest.Route{s.render()},
		s.profiles(),
		s.bootScripts(),
		s.preseeds(),
		s.shellScripts(),
	)
}
