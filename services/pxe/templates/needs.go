package templates

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// Needs are what the templates of a profile need for a machine.
type Needs struct {
	Files     []string            // paths on the file server that the boot script loads
	Variables map[string][]string // names of variables without a default, by template
	Password  bool                // the templates set the password
	SSHKeys   bool                // the templates set the SSH keys
	// SecureBoot says why the boot script does not work with Secure Boot. It is empty if it works, and for other firmware.
	SecureBoot string
}

// FindNeeds returns what a profile needs for the machine of v. It has no files if the boot script cannot be rendered, and nothing
// if the profile does not exist.
func FindNeeds(ctx context.Context, q pg.Querier, profile int64, v script.Variables) (n Needs, err error) {
	p, err := profiles.Get(ctx, q, profile)
	if errors.Is(err, pgx.ErrNoRows) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("read profile %d: %w", profile, err)
	}
	if err := addMedia(ctx, q, nil, &p, &v); err != nil {
		return n, err
	}
	all, err := loadTemplates(ctx, q, &p)
	if err != nil {
		return n, err
	}
	n.Variables = map[string][]string{}
	for _, f := range all {
		n.Password = n.Password || strings.Contains(f.Text, ".Password")
		n.SSHKeys = n.SSHKeys || strings.Contains(f.Text, ".SSHKeys")
		if names := script.FindRequired(f.Text); len(names) > 0 {
			n.Variables[fmt.Sprintf("%s %d (%s)", kindNames[f.Kind], f.ID, f.Name)] = names
		}
		if f.templateKind() == script.Boot {
			f.render(false, v)
			n.Files = script.FindFiles(f.Text, v.URL.Files)
			if f.translate(v); v.Host.SecureBoot && f.Error != "" {
				n.SecureBoot = fmt.Sprintf("%s %d (%s): %s", kindNames[f.Kind], f.ID, f.Name, f.Error)
			}
		}
	}
	return n, nil
}
