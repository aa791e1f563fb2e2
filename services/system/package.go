package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/system/packages"
)

// Package is an installed extension of the panels.
type Package struct {
	ID          int64    `json:"id" ext:"true" doc:"The package's id. It does not change when other packages are installed."`
	Name        string   `json:"name" ext:"true"`
	Version     string   `json:"version" ext:"true" doc:"The package's version."`
	Description string   `json:"description" ext:"true"`
	Files       []string `json:"files" doc:"The paths of the scripts and style sheets that panels load."`
}

// ContentTagged lets callers cache the response.
func (Package) ContentTagged() {}

// installedPackages is the list of all packages.
type installedPackages []Package

// ContentTagged lets callers cache the response.
func (installedPackages) ContentTagged() {}

// assetRequest is the request for a file of a package.
type assetRequest struct {
	ID   int64  `path:"package_id"`
	Path string `path:"path"`
	Hash string `query:"v" doc:"The file's hash, as in files. A response for the current hash may be cached forever."`
}

func (s *Service) packageRoutes() []rest.Route {
	return []rest.Route{
		rest.Read[rest.None, installedPackages]{
			Path:    "/package",
			Guard:   guard.EveryKey,
			Name:    "listPackages",
			Summary: "List packages",
			Do:      s.listPackages,
		},
		rest.Read[rest.Item, Package]{Path: "/package/{package_id}", Guard: guard.AnyKey, Name: "getPackage", Summary: "View a package",
			Do: func(ctx context.Context, req rest.Item) (Package, error) {
				folder, err := s.findPackageFolder(ctx, req.ID)
				if err != nil {
					return Package{}, err
				}
				return s.readPackage(req.ID, folder)
			}},
		rest.Raw[assetRequest]{
			Method:    http.MethodGet,
			Path:      "/package/{package_id}/asset/{path}",
			Guard:     guard.Public,
			Name:      "getPackageAsset",
			Summary:   "Load a file of a package",
			Extension: true,
			Returns:   packages.Types(),
			Ranges:    true,
			Do:        s.serveAsset,
		},
	}
}

func (s *Service) findPackageFolder(ctx context.Context, id int64) (folder string, err error) {
	err = s.db.QueryRow(ctx, "SELECT folder FROM package WHERE id = $1", id).Scan(&folder)
	return folder, err
}

// readPackage reads a package from its folder.
func (s *Service) readPackage(id int64, folder string) (Package, error) {
	m, assets, err := s.installed.Read(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return Package{}, problem.New(problem.NotFound, "There is no package %d.", id)
	}
	p := Package{id, m.Name, m.Version, m.Description, []string{}}
	for _, a := range assets {
		at := url.URL{Path: fmt.Sprintf("/package/%d/asset/%s", id, a.Path), RawQuery: "v=" + a.Hash}
		p.Files = append(p.Files, at.String())
	}
	return p, err
}

// listPackages returns all packages. It logs and leaves out those with an invalid manifest.
func (s *Service) listPackages(ctx context.Context, _ rest.None) (installedPackages, error) {
	folders, err := s.installed.Folders()
	if err != nil {
		return nil, err
	}
	ids, err := s.ensurePackageIDs(ctx, folders)
	if err != nil {
		return nil, err
	}
	list := installedPackages{}
	for _, folder := range folders {
		p, err := s.readPackage(ids[folder], folder)
		switch {
		case problem.Is(err, problem.NotFound): // it has no manifest, or was deleted at the same time
		case err != nil:
			s.logger.Warn("package ignored", "folder", folder, "error", err)
		default:
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Package) int { return int(a.ID - b.ID) })
	return list, nil
}

// ensurePackageIDs returns the ids of folders. New folders get an id.
func (s *Service) ensurePackageIDs(ctx context.Context, folders []string) (map[string]int64, error) {
	ids, err := readPackageIDs(ctx, s.db, folders)
	if err != nil || len(ids) == len(folders) {
		return ids, err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the ids of folders are not recorded")
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO package (folder) SELECT unnest($1::text[]) EXCEPT SELECT folder FROM package ORDER BY 1 ON CONFLICT DO NOTHING",
			folders,
		); err != nil {
			return err
		}
		ids, err = readPackageIDs(ctx, tx, folders)
		return err
	})
	return ids, err
}

func readPackageIDs(ctx context.Context, q pg.Querier, folders []string) (map[string]int64, error) {
	rows, err := q.Query(ctx, "SELECT id, folder FROM package WHERE folder = ANY ($1)", folders)
	if err != nil {
		return nil, fmt.Errorf("read the packages' ids: %w", err)
	}
	ids, id, folder := map[string]int64{}, int64(0), ""
	_, err = pgx.ForEachRow(rows, []any{&id, &folder}, func() error {
		ids[folder] = id
		return nil
	})
	return ids, err
}

const (
	cacheForever    = "public, max-age=31536000, immutable"
	cacheRevalidate = "public, no-cache"
)

// serveAsset sends a file of a package. Browsers may cache it forever if the request has its hash.
func (s *Service) serveAsset(ctx context.Context, c *rest.RawCall, req assetRequest) error {
	folder, err := s.findPackageFolder(ctx, req.ID)
	if err != nil {
		return err
	}
	file, found, changed, err := s.installed.Open(folder, req.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return problem.New(problem.NotFound, "Package %d has no asset with this path.", req.ID)
	} else if err != nil {
		return err
	}
	defer file.Close()
	header := c.Writer.Header()
	header.Set("Content-Type", found.Type())
	header.Set("ETag", `"`+found.Hash+`"`)
	header.Set("Cache-Control", cacheRevalidate)
	if req.Hash == found.Hash {
		header.Set("Cache-Control", cacheForever)
	}
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox") // an SVG can be opened as a page
	http.ServeContent(c.Writer, c.Request, "", changed, file)
	return nil
}
