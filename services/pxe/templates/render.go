package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aymanbagabas/go-udiff"
	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// RenderedBefore is a file of an earlier response. The API document names a component for this type.
type RenderedBefore struct {
	Kind string `json:"kind" doc:"The use of the template."`
	ID   int64  `json:"id" doc:"The id of the template."`
	Text string `json:"text" max:"1048576" lines:"true" trim:"false" doc:"The rendered text."`
}

// TemplateDraft is a template that is not saved yet.
type TemplateDraft struct {
	Kind script.Kind `json:"kind" required:"create" enum:"boot_script,preseed,shell_script" doc:"The kind of the template."`
	ID   int64       `json:"id" required:"create" min:"1" doc:"The id of the template."`
	Body string      `json:"body" max:"262144" lines:"true" trim:"false" doc:"The template that is rendered instead of the stored one."`
}

// RenderedFile is one rendered template.
type RenderedFile struct {
	Kind       string `json:"kind" enum:"boot_script,preseed,shell_during,shell_after" doc:"The use of the template."`
	ID         int64  `json:"id" doc:"The id of the template."`
	Name       string `json:"name"`
	Text       string `json:"text,omitempty" doc:"The rendered text, with [secret] in place of secrets."`
	Error      string `json:"error,omitempty" doc:"Why the template cannot be rendered for this machine, with line and column."`
	Difference string `json:"difference,omitempty" doc:"The difference to the file of this kind and id in earlier, in the format of diff -u."`
}

// Preview renders a profile for a machine that need not exist, with marks in place of secrets, as if the profile had the drafts. It
// compares the files with earlier ones.
func Preview(
	ctx context.Context, q pg.Querier, profile int64, v script.Variables, drafts []TemplateDraft, earlier []RenderedBefore,
) ([]RenderedFile, error) {
	p, err := profiles.Get(ctx, q, profile)
	if err != nil {
		return nil, err
	}
	v.Profile = script.Profile{ID: p.ID, Name: p.Name}
	if err := addMedia(ctx, q, nil, &p, &v); err != nil {
		return nil, err
	}
	addDrafts(&p, drafts)
	files, err := loadTemplates(ctx, q, &p)
	if err != nil {
		return nil, err
	}
	if err := replaceByDrafts(files, drafts); err != nil {
		return nil, err
	}
	for i := range files {
		f := &files[i]
		f.render(false, v)
		f.translate(v)
		for _, before := range earlier {
			if before.Kind == f.Kind && before.ID == f.ID {
				f.Difference = udiff.Unified("earlier", "now", before.Text, f.Text)
			}
		}
	}
	return files, nil
}

// addDrafts makes a profile use the templates of drafts. A shell script that the profile lacks becomes the last one.
func addDrafts(p *OSReloadProfile, drafts []TemplateDraft) {
	for _, draft := range drafts {
		switch of := (rest.Ref{ID: draft.ID}); {
		case draft.Kind == script.Boot:
			p.BootScript = &of
		case draft.Kind == script.Preseed:
			p.Preseed = &of
		case !slices.Contains(p.Shell.During, draft.ID) && !slices.Contains(p.Shell.After, draft.ID):
			p.Shell.After = append(p.Shell.After, draft.ID)
		}
	}
}

// replaceByDrafts replaces the stored text of templates by that of drafts. A draft of a template that does not exist is an error.
func replaceByDrafts(files []RenderedFile, drafts []TemplateDraft) error {
	var invalid problem.Fields
	for i, draft := range drafts {
		isUsed := false
		for j := range files {
			if f := &files[j]; f.templateKind() == draft.Kind && f.ID == draft.ID {
				f.Text, isUsed = draft.Body, true
			}
		}
		if !isUsed {
			invalid.Add(fmt.Sprintf("/drafts/%d/id", i), "not_found", "does not exist")
		}
	}
	return invalid.Err()
}

// templateKind returns the kind of the file's template.
func (f *RenderedFile) templateKind() script.Kind {
	switch f.Kind {
	case "boot_script":
		return script.Boot
	case "preseed":
		return script.Preseed
	default:
		return script.Shell
	}
}

// render replaces the text, which is the template, by the rendered text, or sets the error.
func (f *RenderedFile) render(reveal bool, v script.Variables) {
	source := f.Text
	f.Text = ""
	parsed, reason := f.templateKind().Parse(source)
	if f.Error = reason; reason != "" {
		return
	}
	text, err := parsed.Render(reveal, v)
	if f.Text = text; err != nil {
		f.Error = err.Error()
	}
}

// translate turns a boot script into one for GRUB if the machine's firmware loads only programs with signatures. It sets the error if
// that is not possible.
func (f *RenderedFile) translate(v script.Variables) {
	if f.templateKind() != script.Boot || !v.Host.SecureBoot || f.Error != "" {
		return
	}
	text, err := script.ToGRUB(f.Text, v.URL.Files)
	if f.Text = text; err != nil {
		f.Error = err.Error()
	}
}

// loadTemplates returns a profile's templates. The text of each is the template itself.
func loadTemplates(ctx context.Context, q pg.Querier, p *OSReloadProfile) ([]RenderedFile, error) {
	rows, err := q.Query(ctx, `
		SELECT 'boot_script', b.id, b.name, b.body FROM boot_script b WHERE b.id = $1
		UNION ALL SELECT 'preseed', s.id, s.name, s.body FROM preseed s WHERE s.id = $2
		UNION ALL (SELECT 'shell_during', s.id, s.name, s.body FROM unnest($3::bigint[]) WITH ORDINALITY AS wanted (id, n) JOIN shell_script s USING (id) ORDER BY n)
		UNION ALL (SELECT 'shell_after', s.id, s.name, s.body FROM unnest($4::bigint[]) WITH ORDINALITY AS wanted (id, n) JOIN shell_script s USING (id) ORDER BY n)`,
		refID(p.BootScript), refID(p.Preseed), p.Shell.During, p.Shell.After)
	if err != nil {
		return nil, fmt.Errorf("read the templates of profile %d: %w", p.ID, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f RenderedFile, err error) {
		err = row.Scan(&f.Kind, &f.ID, &f.Name, &f.Text)
		return f, err
	})
}

// refID returns the id of a reference, or nil.
func refID(r *rest.Ref) *int64 {
	if r == nil {
		return nil
	}
	return &r.ID
}

// Failure describes to operators why a machine's files cannot be rendered, such as an error of a template with line and
// column.
type Failure string

func (f Failure) Error() string { return string(f) }

// RenderFiles renders all templates of a profile. box opens the license key of its edition of Windows; without a box, the files
// have a mark in place of the key. It fails with a Failure if the profile was deleted, or if a template cannot be rendered.
func RenderFiles(ctx context.Context, q pg.Querier, box *seal.Box, profile int64, v script.Variables) (all siteagent.Files, err error) {
	p, err := profiles.Get(ctx, q, profile)
	if errors.Is(err, pgx.ErrNoRows) {
		return all, Failure("The profile was deleted.")
	}
	if err != nil {
		return all, fmt.Errorf("read profile %d: %w", profile, err)
	}
	if err := addMedia(ctx, q, box, &p, &v); err != nil {
		return all, err
	}
	templates, err := loadTemplates(ctx, q, &p)
	if err != nil {
		return all, err
	}
	var during, after []string
	for i := range templates {
		f := &templates[i]
		f.render(true, v)
		if f.translate(v); f.Error != "" {
			return all, Failure(fmt.Sprintf("%s %d (%s): %s", kindNames[f.Kind], f.ID, f.Name, f.Error))
		}
		switch f.Kind {
		case "boot_script":
			all.Boot = f.Text
		case "preseed":
			all.Preseed = f.Text
		case "shell_during":
			during = append(during, f.Text)
		default:
			after = append(after, f.Text)
		}
	}
	all.During, all.After = script.Combine(during), script.Combine(after)
	return all, nil
}

var kindNames = map[string]string{
	"boot_script":  "boot script",
	"preseed":      "preseed",
	"shell_during": "shell script",
	"shell_after":  "shell script",
}
