package templates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// sharedProfile is a profile with all its templates, for another installation. It lacks what belongs to one
// installation, such as billing_id and the email template.
type sharedProfile struct {
	Format                int              `yaml:"ironplane_profile"`
	Name                  string           `yaml:"name"`
	TimeUntilMarkedFailed *int32           `yaml:"time_until_marked_failed,omitempty"`
	Experimental          bool             `yaml:"experimental,omitempty"`
	BootScript            sharedTemplate   `yaml:"boot_script"`
	Preseed               *sharedTemplate  `yaml:"preseed,omitempty"`
	ShellScripts          []sharedTemplate `yaml:"shell_scripts,omitempty"`
	Drivers               []rest.RefID     `yaml:"-"` // only in copies, like the ISO
	ISO                   profileISOBody   `yaml:"-"`
	During                []string         `yaml:"shell_during,omitempty"`
	After                 []string         `yaml:"shell_after,omitempty"`
}

type sharedTemplate struct {
	Name          string  `yaml:"name"`
	Description   *string `yaml:"description,omitempty"`
	IsInstallable bool    `yaml:"is_installable,omitempty"`
	Body          string  `yaml:"body"`
}

const (
	sharedFormat = 1
	// maxShellScripts is how many shell scripts an imported profile may contain.
	maxShellScripts = 100
)

// SharedProfile is a profile with all its templates as one file.
type SharedProfile struct {
	YAML string `json:"yaml" doc:"The file, which can be imported elsewhere."`
}

type (
	copyRequest struct {
		ID   int64 `path:"*"`
		Body rest.Body[copyBody]
	}
	copyBody struct {
		Name string `json:"name" required:"create" max:"100" example:"Debian 13, copied" doc:"The name of the copy. It is appended to the names of the copied templates."`
	}
	importRequest struct {
		Body rest.Body[importBody]
	}
	importBody struct {
		YAML string `json:"yaml" required:"create" max:"1000000" lines:"true" trim:"false" doc:"The file of an export."`
		Name string `json:"name" max:"100" doc:"The name of the profile. The default is the name in the file."`
	}
)

// shareRoutes returns the routes that copy, export and import profiles.
func (s *Profiles) shareRoutes() []rest.Route {
	has := guard.Has(permission.PXESettings)
	each := rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRefused}
	return []rest.Route{
		rest.Mutation[copyRequest, OSReloadProfile]{Method: http.MethodPost, Path: "/pxe/profile/{profile_id}/copy", Guard: has, Extension: true,
			Name: "copyProfile", Summary: "Copy a profile and all its templates", Effect: each, Do: copyProfile},
		rest.Read[rest.Item, SharedProfile]{
			Path:      "/pxe/profile/{profile_id}/export",
			Guard:     has,
			Extension: true,
			Name:      "exportProfile",
			Summary:   "Export a profile and all its templates",
			Doc:       "The file lacks what belongs to this installation: billing_id, access_client, the ISO, drivers and the email template.",
			Do: func(ctx context.Context, req rest.Item) (SharedProfile, error) {
				p, err := readProfile(ctx, s.DB, req.ID)
				if err != nil {
					return SharedProfile{}, err
				}
				text, err := yaml.Marshal(p)
				return SharedProfile{string(text)}, err
			},
		},
		rest.Mutation[importRequest, OSReloadProfile]{
			Method:    http.MethodPost,
			Path:      "/pxe/profile/import",
			Guard:     has,
			Extension: true,
			Name:      "importProfile",
			Summary:   "Import a profile and all its templates",
			Doc:       "Existing templates with the same name and body are used. If only the name is in use, the profile's name is appended to it.",
			Effect:    each,
			Example:   `{"yaml": "ironplane_profile: 1\nname: Imported\nboot_script: {name: Imported, body: \"#!ipxe\"}\n"}`,
			Do:        importProfile,
		},
	}
}

// copyProfile copies a profile and its templates within the installation.
func copyProfile(ctx context.Context, tx *pg.Tx, req copyRequest) (OSReloadProfile, error) {
	p, err := readProfile(ctx, tx, req.ID)
	if err != nil {
		return OSReloadProfile{}, err
	}
	body, err := req.Body.New()
	if err != nil {
		return OSReloadProfile{}, err
	}
	p.Name = body.Name
	return p.create(ctx, tx, false)
}

// importProfile creates a profile and its templates from the file of an export.
func importProfile(ctx context.Context, tx *pg.Tx, req importRequest) (OSReloadProfile, error) {
	body, err := req.Body.New()
	if err != nil {
		return OSReloadProfile{}, err
	}
	p, err := readShared(body.YAML)
	if err != nil {
		return OSReloadProfile{}, err
	}
	if body.Name != "" {
		p.Name = body.Name
	}
	return p.create(ctx, tx, true)
}

// readShared parses the file of an export, and returns an error for callers if it is not valid.
func readShared(text string) (*sharedProfile, error) {
	var p sharedProfile
	in := yaml.NewDecoder(strings.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&p); err != nil {
		return nil, problem.Member("/yaml", "invalid", "is invalid: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := in.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, problem.Member("/yaml", "invalid", "must be a single YAML document")
	}
	invalid := func(format string, args ...any) error { return problem.Member("/yaml", "invalid", format, args...) }
	switch {
	case p.Format != sharedFormat:
		return nil, invalid("must contain ironplane_profile: %d", sharedFormat)
	case len(p.ShellScripts) > maxShellScripts:
		return nil, invalid("can have at most %d shell scripts", maxShellScripts)
	case p.TimeUntilMarkedFailed != nil && (*p.TimeUntilMarkedFailed < 1 || *p.TimeUntilMarkedFailed > 10080):
		return nil, invalid("time_until_marked_failed must be from 1 to 10080")
	}
	all := map[string][]sharedTemplate{"boot_script": {p.BootScript}, "shell_scripts": p.ShellScripts}
	if p.Preseed != nil {
		all["preseed"] = []sharedTemplate{*p.Preseed}
	}
	kinds := map[string]script.Kind{"boot_script": script.Boot, "preseed": script.Preseed, "shell_scripts": script.Shell}
	if reason := invalidNameReason(p.Name); reason != "" {
		return nil, invalid("name %s", reason)
	}
	for member, templates := range all {
		for _, t := range templates {
			if reason := invalidNameReason(t.Name); reason != "" {
				return nil, invalid("%s: name %s", member, reason)
			}
			if _, reason := kinds[member].Parse(t.Body); reason != "" {
				return nil, problem.Member("/yaml", "template", "%s %s: %s", member, t.Name, reason)
			}
		}
	}
	for _, name := range slices.Concat(p.During, p.After) {
		if !slices.ContainsFunc(p.ShellScripts, func(t sharedTemplate) bool { return t.Name == name }) {
			return nil, invalid("does not contain the shell script %s", name)
		}
	}
	return &p, nil
}

// invalidNameReason returns why a name is not valid, or "".
func invalidNameReason(name string) string {
	switch {
	case strings.TrimSpace(name) == "":
		return "is required"
	case utf8.RuneCountInString(name) > 255 || strings.ContainsRune(name, 0):
		return "can have at most 255 characters, and no NUL"
	}
	return ""
}

// readProfile reads a profile with its templates.
func readProfile(ctx context.Context, q pg.Querier, id int64) (*sharedProfile, error) {
	profile, err := profiles.Get(ctx, q, id)
	if err != nil {
		return nil, err
	}
	p := &sharedProfile{Format: sharedFormat, Name: profile.Name, TimeUntilMarkedFailed: profile.TimeUntilMarkedFailed,
		Experimental: profile.Experimental}
	if of := profile.ISO; of != nil {
		p.ISO = profileISOBody{ID: (*rest.RefID)(&of.ID), Edition: (*rest.RefOrName)(of.Edition)}
	}
	for _, driver := range profile.Drivers {
		p.Drivers = append(p.Drivers, rest.RefID(driver.ID))
	}
	if err := p.BootScript.read(ctx, q, "boot_script", profile.BootScript.ID); err != nil {
		return nil, err
	}
	if profile.Preseed != nil {
		p.Preseed = &sharedTemplate{}
		if err := p.Preseed.read(ctx, q, "preseed", profile.Preseed.ID); err != nil {
			return nil, err
		}
		if err := q.QueryRow(ctx, "SELECT is_installable FROM preseed WHERE id = $1", profile.Preseed.ID).
			Scan(&p.Preseed.IsInstallable); err != nil {
			return nil, err
		}
	}
	names := map[int64]string{}
	for _, one := range slices.Concat(profile.Shell.During, profile.Shell.After) {
		if names[one] != "" {
			continue
		}
		var t sharedTemplate
		if err := t.read(ctx, q, "shell_script", one); err != nil {
			return nil, err
		}
		names[one], p.ShellScripts = t.Name, append(p.ShellScripts, t)
	}
	for _, one := range profile.Shell.During {
		p.During = append(p.During, names[one])
	}
	for _, one := range profile.Shell.After {
		p.After = append(p.After, names[one])
	}
	return p, nil
}

// read reads a template from its table.
func (t *sharedTemplate) read(ctx context.Context, q pg.Querier, table string, id int64) error {
	err := q.QueryRow(ctx, "SELECT name, description, body FROM "+table+" WHERE id = $1", id).Scan(&t.Name, &t.Description, &t.Body)
	if err != nil {
		return fmt.Errorf("read %s %d: %w", table, id, err)
	}
	return nil
}

// create creates the profile and its templates. With reuse, existing templates with the same name and body are used
// instead.
func (p *sharedProfile) create(ctx context.Context, tx *pg.Tx, reuse bool) (profile OSReloadProfile, err error) {
	body := profileBody{Name: p.Name, Drivers: p.Drivers, ISO: p.ISO, TimeUntilMarkedFailed: p.TimeUntilMarkedFailed,
		Experimental: p.Experimental}
	id, err := p.template(ctx, tx, "boot_script", p.BootScript, reuse)
	if err != nil {
		return profile, err
	}
	body.BootScript = rest.RefID(id)
	if p.Preseed != nil {
		if id, err = p.template(ctx, tx, "preseed", *p.Preseed, reuse); err != nil {
			return profile, err
		}
		body.Preseed = (*rest.RefID)(&id)
	}
	scripts := map[string]rest.RefID{}
	for _, t := range p.ShellScripts {
		id, err := p.template(ctx, tx, "shell_script", t, reuse)
		if err != nil {
			return profile, err
		}
		scripts[t.Name] = rest.RefID(id)
	}
	for _, name := range p.During {
		body.Shell.During = append(body.Shell.During, scripts[name])
	}
	for _, name := range p.After {
		body.Shell.After = append(body.Shell.After, scripts[name])
	}
	if id, err = profileTable.Insert(ctx, tx, &body); err != nil {
		return profile, fmt.Errorf("create profile: %w", err)
	}
	if profile, err = profiles.Get(ctx, tx, id); err != nil {
		return profile, fmt.Errorf("read the profile: %w", err)
	}
	tx.Record(
		pg.Record{
			Kind:    "pxe.profile",
			Action:  pg.Created,
			After:   profile,
			Targets: []pg.Target{{Type: "pxe/profile", Noun: "profile", ID: id, Name: profile.Name, Version: profile.Version}},
		},
	)
	return profile, nil
}

// template creates a template, and returns its id. If its name is in use, the profile's name is appended.
func (p *sharedProfile) template(ctx context.Context, tx *pg.Tx, table string, t sharedTemplate, reuse bool) (id int64, err error) {
	var body string
	err = tx.QueryRow(ctx, "SELECT id, body FROM "+table+" WHERE name = $1 FOR SHARE", t.Name).Scan(&id, &body)
	switch {
	case err == nil && reuse && body == t.Body:
		return id, nil
	case err == nil:
		t.Name = fmt.Sprintf("%s (%s)", t.Name, p.Name)
	case !errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("find %s %s: %w", table, t.Name, err)
	}
	meta := templateTables[slices.IndexFunc(templateTables, func(t templateTable) bool { return t.name == table })]
	target := pg.Target{Type: meta.path, Noun: meta.noun, Name: t.Name, Version: 1}
	record := pg.Record{Kind: meta.kind, Action: pg.Created}
	insert, args := "INSERT INTO "+table+" (name, description, body) VALUES ($1, $2, $3) RETURNING id", []any{t.Name, t.Description, t.Body}
	if meta.of == script.Preseed {
		insert, args = "INSERT INTO preseed (name, description, body, is_installable) VALUES ($1, $2, $3, $4) RETURNING id", append(
			args,
			t.IsInstallable,
		)
	}
	if err := tx.QueryRow(ctx, insert, args...).Scan(&target.ID); err != nil {
		return 0, fmt.Errorf("create %s: %w", meta.noun, err)
	}
	record.Targets, record.After = []pg.Target{target}, templateRecord{target.ID, t.Name, t.Description, t.Body}
	tx.Record(record)
	return target.ID, nil
}

// templateRecord is a template in the record of its creation.
type templateRecord struct {
	ID          int64   `json:"id"`
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
	Body        string  `json:"body"`
}
