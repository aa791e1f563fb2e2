package templates

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/template"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// addMedia adds the ISO and the drivers of a profile to the variables. box opens the license key of the edition; without a box,
// a mark stands in its place. It fails with a Failure if the key cannot be opened.
func addMedia(ctx context.Context, q pg.Querier, box *seal.Box, p *OSReloadProfile, v *script.Variables) error {
	v.ISO, v.Drivers = script.ISO{}, []script.Driver{}
	for _, d := range p.Drivers {
		v.Drivers = append(v.Drivers, script.Driver{ID: d.ID, Name: d.Name, Path: fmt.Sprint("drivers/", d.ID)})
	}
	if p.ISO == nil {
		return nil
	}
	var edition int64
	var key []byte
	err := q.QueryRow(ctx, `SELECT i.folder, coalesce(e.id, 0), coalesce(e.name, ''), e.license_key FROM iso i
		LEFT JOIN iso_edition e ON e.iso_id = i.id AND e.name = $2 WHERE i.id = $1`, p.ISO.ID, p.ISO.Edition).
		Scan(&v.ISO.Folder, &edition, &v.ISO.Edition, &key)
	if err != nil {
		return fmt.Errorf("read the ISO of profile %d: %w", p.ID, err)
	}
	if v.ISO.HasKey = key != nil; !v.ISO.HasKey {
		return nil
	}
	if v.ISO.Key = secret.New(template.Mark); box == nil {
		return nil
	}
	if v.ISO.Key, err = box.Open(seal.Location{Table: "iso_edition", Column: "license_key", ID: edition}, key); err != nil {
		return Failure(fmt.Sprintf("The license key of the edition %s cannot be unsealed.", v.ISO.Edition))
	}
	return nil
}
