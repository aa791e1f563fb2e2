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

// sharedProfile is a profile with all its templates, as operators give it to each other: what is of one installation alone,
// as billing_id and the email template, is left out.
type sharedProfile struct {
	Format                int              `yaml:"ironplane_profile"`
	Name                  string           `yaml:"name"`
	TimeUntilMarkedFailed *int32           `yaml:"time_until_marked_failed,omitempty"`
	BootScript            sharedTemplate   `yaml:"boot_script"`
	Preseed               *sharedTemplate  `yaml:"preseed,omitempty"`
	ShellScripts          []sharedTemplate `yaml:"shell_scripts,omitempty"`
	Drivers               []rest.RefID     `yaml:"-"` // which a copy has, too, and the ISO
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
	// mostShared is how many shell scripts a profile brings along at most.
	mostShared = 100
)

// SharedProfile is a profile with all its templates as one file.
type SharedProfile struct {
	YAML string `json:"yaml" doc:"to be imported elsewhere"`
}

type (
	copyRequest struct {
		ID   int64 `path:"*"`
		Body rest.Body[copyBody]
	}
	copyBody struct {
		Name string `json:"name" required:"create" max:"100" example:"Debian 13, copied" doc:"of the copy; those of its templates have it behind theirs"`
	}
	importRequest struct {
		Body rest.Body[importBody]
	}
	importBody struct {
		YAML string `json:"yaml" required:"create" max:"1000000" trim:"false" doc:"what an export answered"`
		Name string `json:"name" max:"100" doc:"instead of that in the file"`
	}
)

func (s *Profiles) shares() []rest.Route {
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
			Doc:       "What is of this installation alone is left out: billing_id, access_client, the ISO, drivers and the email template.",
			Do: func(ctx context.Context, req rest.Item) (SharedProfile, error) {
				p, err := share(ctx, s.DB, req.ID)
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
			Doc:       "Templates that are there, with the same name and body, are used; one that has only the name gets the profile's behind it.",
			Effect:    each,
			Example:   `{"yaml": "ironplane_profile: 1\nname: Imported\nboot_script: {name: Imported, body: \"#!ipxe\"}\n"}`,
			Do:        importProfile,
		},
	}
}

func copyProfile(ctx context.Context, tx *pg.Tx, req copyRequest) (OSReloadProfile, error) {
	p, err := share(ctx, tx, req.ID)
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

// readShared reads a file, or says what is wrong with it.
func readShared(text string) (*sharedProfile, error) {
	var p sharedProfile
	in := yaml.NewDecoder(strings.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&p); err != nil {
		return nil, problem.Member("/yaml", "invalid", "cannot be read: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := in.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, problem.Member("/yaml", "invalid", "has more than one document")
	}
	wrong := func(format string, args ...any) error { return problem.Member("/yaml", "invalid", format, args...) }
	switch {
	case p.Format != sharedFormat:
		return nil, wrong("has to begin with ironplane_profile: %d", sharedFormat)
	case len(p.ShellScripts) > mostShared:
		return nil, wrong("can have at most %d shell scripts", mostShared)
	case p.TimeUntilMarkedFailed != nil && (*p.TimeUntilMarkedFailed < 1 || *p.TimeUntilMarkedFailed > 10080):
		return nil, wrong("time_until_marked_failed must be from 1 to 10080")
	}
	all := map[string][]sharedTemplate{"boot_script": {p.BootScript}, "shell_scripts": p.ShellScripts}
	if p.Preseed != nil {
		all["preseed"] = []sharedTemplate{*p.Preseed}
	}
	kinds := map[string]script.Kind{"boot_script": script.Boot, "preseed": script.Preseed, "shell_scripts": script.Shell}
	if why := wrongName(p.Name); why != "" {
		return nil, wrong("name %s", why)
	}
	for member, templates := range all {
		for _, t := range templates {
			if why := wrongName(t.Name); why != "" {
				return nil, wrong("%s: name %s", member, why)
			}
			if _, said := kinds[member].Check(t.Body); said != "" {
				return nil, problem.Member("/yaml", "template", "%s %s: %s", member, t.Name, said)
			}
		}
	}
	for _, name := range slices.Concat(p.During, p.After) {
		if !slices.ContainsFunc(p.ShellScripts, func(t sharedTemplate) bool { return t.Name == name }) {
			return nil, wrong("has no shell script %s", name)
		}
	}
	return &p, nil
}

// wrongName says what is wrong with a name.
func wrongName(name string) string {
	switch {
	case strings.TrimSpace(name) == "":
		return "is required"
	case utf8.RuneCountInString(name) > 255 || strings.ContainsRune(name, 0):
		return "can have at most 255 characters, and no NUL"
	}
	return ""
}

// share reads a profile with its templates.
func share(ctx context.Context, q pg.Querier, id int64) (*sharedProfile, error) {
	profile, err := profiles.Get(ctx, q, id)
	if err != nil {
		return nil, err
	}
	p := &sharedProfile{Format: sharedFormat, Name: profile.Name, TimeUntilMarkedFailed: profile.TimeUntilMarkedFailed}
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

func (t *sharedTemplate) read(ctx context.Context, q pg.Querier, table string, id int64) error {
	err := q.QueryRow(ctx, "SELECT name, description, body FROM "+table+" WHERE id = $1", id).Scan(&t.Name, &t.Description, &t.Body)
	if err != nil {
		return fmt.Errorf("read %s %d: %w", table, id, err)
	}
	return nil
}

// create makes the profile and its templates. Where reuse is set, those that are there are not made again.
func (p *sharedProfile) create(ctx context.Context, tx *pg.Tx, reuse bool) (made OSReloadProfile, err error) {
	body := profileBody{Name: p.Name, Drivers: p.Drivers, ISO: p.ISO, TimeUntilMarkedFailed: p.TimeUntilMarkedFailed}
	id, err := p.template(ctx, tx, "boot_script", p.BootScript, reuse)
	if err != nil {
		return made, err
	}
	body.BootScript = rest.RefID(id)
	if p.Preseed != nil {
		if id, err = p.template(ctx, tx, "preseed", *p.Preseed, reuse); err != nil {
			return made, err
		}
		body.Preseed = (*rest.RefID)(&id)
	}
	scripts := map[string]rest.RefID{}
	for _, t := range p.ShellScripts {
		id, err := p.template(ctx, tx, "shell_script", t, reuse)
		if err != nil {
			return made, err
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
		return made, fmt.Errorf("create profile: %w", err)
	}
	if made, err = profiles.Get(ctx, tx, id); err != nil {
		return made, fmt.Errorf("read the profile: %w", err)
	}
	tx.Record(
		pg.Record{
			Kind:    "pxe.profile",
			Action:  pg.Created,
			After:   made,
			Targets: []pg.Target{{Type: "pxe/profile", Noun: "profile", ID: id, Name: made.Name, Version: made.Version}},
		},
	)
	return made, nil
}

// template makes a template, with the profile's name behind its own where that is taken, and answers its id.
func (p *sharedProfile) template(ctx context.Context, tx *pg.Tx, table string, t sharedTemplate, reuse bool) (id int64, err error) {
	var body string
	err = tx.QueryRow(ctx, "SELECT id, body FROM "+table+" WHERE name = $1 FOR SHARE", t.Name).Scan(&id, &body)
	switch {
	case err == nil && reuse && body == t.Body:
		return id, nil
	case err == nil:
		t.Name = fmt.Sprintf("%s (%s)", t.Name, p.Name)
	case !errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("look for %s %s: %w", table, t.Name, err)
	}
	of := templateTables[slices.IndexFunc(templateTables, func(of templateTable) bool { return of.name == table })]
	target := pg.Target{Type: of.path, Noun: of.noun, Name: t.Name, Version: 1}
	record := pg.Record{Kind: of.kind, Action: pg.Created}
	insert, args := "INSERT INTO "+table+" (name, description, body) VALUES ($1, $2, $3) RETURNING id", []any{t.Name, t.Description, t.Body}
	if of.of == script.Preseed {
		insert, args = "INSERT INTO preseed (name, description, body, is_installable) VALUES ($1, $2, $3, $4) RETURNING id", append(
			args,
			t.IsInstallable,
		)
	}
	if err := tx.QueryRow(ctx, insert, args...).Scan(&target.ID); err != nil {
		return 0, fmt.Errorf("create %s: %w", of.noun, err)
	}
	record.Targets, record.After = []pg.Target{target}, madeTemplate{target.ID, t.Name, t.Description, t.Body}
	tx.Record(record)
	return target.ID, nil
}

// madeTemplate is a template in the record of its making.
type madeTemplate struct {
	ID          int64   `json:"id"`
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
	Body        string  `json:"body"`
}
