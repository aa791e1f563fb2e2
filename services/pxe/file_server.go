package pxe

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/remote"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/site"
)

// FileServer is the agent at a site that has the files which installations read.
type FileServer struct {
	rest.Versioned
	ID                   int64     `json:"id" db:"id"`
	Name                 string    `json:"name" db:"name"`
	InstallMaxConcurrent int32     `json:"install_max_concurrent" db:"install_max_concurrent" doc:"how many installations read from it at a time"`
	Group                *rest.Ref `json:"group,omitempty" db:"group_" doc:"the site's IP group; left out once that is deleted"`
	Parent               *rest.Ref `json:"parent,omitempty" db:"parent_" doc:"the file server whose files it has, too"`
	HTTP                 HTTP      `json:"http" db:"http_"`
	SSH                  SSH       `json:"ssh" db:"ssh_"`

	Health       *site.AgentHealth `json:"health,omitempty" ext:"true" doc:"of the agent, with include=health"`
	HealthStatus string            `json:"-" db:"health"` // which lists are filtered by
}

// SSH is how files get to a file server.
type SSH struct {
	Port      int32  `json:"port" db:"port"`
	PublicKey string `json:"public_key" db:"public_key"`
	UseSFTP   bool   `json:"use_sftp" db:"use_sftp" ext:"true" doc:"whether the contents of files go this way, and not by HTTP"`
}

type fileServerBody struct {
	Name                 string         `json:"name" db:"name" required:"create" example:"fra1-files1"`
	InstallMaxConcurrent int32          `json:"install_max_concurrent" db:"install_max_concurrent" required:"create" min:"1" max:"10000" example:"20" doc:"how many installations read from it at a time"`
	Group                *rest.RefID    `json:"group_id" db:"group_id" alias:"group" required:"create" example:"1" doc:"the site's IP group: one of /group"`
	Parent               *rest.RefID    `json:"parent_id" db:"parent_id" alias:"parent" doc:"the file server whose files it has, too: one of /pxe/file, and none below itself"`
	HTTP                 fileServerHTTP `json:"http" db:"http_"`
	SSH                  sshBody        `json:"ssh" db:"ssh_"`
}

// fileServerHTTP is an httpBody of which more is required.
type fileServerHTTP struct {
	Host     string         `json:"host" db:"host" alias:"host" required:"create" example:"files.fra1.example.net" doc:"a name or an address"`
	Port     *int32         `json:"port" db:"port" alias:"port" required:"create" min:"1" max:"65535" example:"8443"`
	UseHTTPS bool           `json:"use_https" db:"use_https" alias:"use_https" example:"true"`
	APIKey   *secret.String `json:"api_key" db:"api_key" alias:"api_key" required:"create" example:"what the agent asks of its callers" doc:"kept sealed and never shown; on edit, empty: unchanged"`

	Fingerprint *string `json:"fingerprint" db:"fingerprint" alias:"fingerprint" ext:"true" example:"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9" doc:"the SHA-256 of the agent's certificate, as site-agent fingerprint prints it, where no public authority vouches for that"`
}

type sshBody struct {
	Port      int32  `json:"port" db:"port" min:"1" max:"65535" example:"22" doc:"22 where it is not sent"`
	PublicKey string `json:"public_key" db:"public_key" alias:"public_key" required:"create" max:"16384" example:"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG fra1-files1" doc:"of the host, as in a known_hosts or authorized_keys file: type, key and comment"`
	UseSFTP   bool   `json:"use_sftp" db:"use_sftp" alias:"use_sftp" ext:"true" example:"false" doc:"true: the contents of files get there, and from there to its children, by SFTP at this port; nothing is sent to a host that has another key"`
}

const sshPort = 22

// Resolve checks what the tags cannot say, and writes the key in its one form.
func (b *fileServerBody) Resolve(invalid *problem.Fields) {
	(*httpBody)(&b.HTTP).validate(invalid)
	if b.SSH.Port == 0 {
		b.SSH.Port = sshPort
	}
	if b.SSH.PublicKey == "" {
		return
	}
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(b.SSH.PublicKey))
	if err != nil || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		invalid.Add("/ssh/public_key", "invalid", "must be one public key of SSH, without options, such as ssh-ed25519 AAAA… and a comment")
		return
	}
	b.SSH.PublicKey = string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))
	if comment != "" {
		b.SSH.PublicKey += " " + comment
	}
}

func (s *Service) fileServers() []rest.Route {
	return rest.Resource[FileServer, fileServerBody]{
		Path:        "/pxe/file",
		ID:          "file_server_id",
		Noun:        "file server",
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "fra1-files2", "install_max_concurrent": 40}`,
		Guard:       guard.Has(permission.PXESettings),
		Table:       "file_server",
		View:        "file_server_view",
		Box:         s.box,
		Lock:        lockFileServers,
		Check:       s.checkFileServer,
		Delete:      deleteFileServer,
		Includes: map[string]func(context.Context, pg.Querier, *FileServer) error{
			"health": func(ctx context.Context, q pg.Querier, one *FileServer) (err error) {
				one.Health, err = site.Health(ctx, q, site.FileServer, one.ID)
				return err
			},
		},
		List: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "host": "http_host"},
			Filters: map[string]string{"name": "name", "host": "http_host", "group_id": "group_id", "parent_id": "parent_id", "health": "health"}},
	}.Routes()
}

// lockFileServers lets those who write file servers go one after the other: whom one of them is below stays as it was looked at.
func lockFileServers(ctx context.Context, tx *pg.Tx, _ ...*fileServerBody) error {
	return tx.Lock(ctx, "file servers", 0)
}

func (s *Service) checkFileServer(ctx context.Context, tx *pg.Tx, id int64, before, b *fileServerBody) error {
	if before == nil {
		before = &fileServerBody{}
	} else if err := (*httpBody)(&b.HTTP).keyAgain((*httpBody)(&before.HTTP)); err != nil {
		return err
	} else if err := remote.KeyAgain(
		b.SSH.UseSFTP && b.SSH != before.SSH, b.HTTP.APIKey, "/http/api_key",
	); err != nil { // which is the password
		return err
	}
	if b.Parent != nil && id != 0 {
		var below bool
		err := tx.QueryRow(ctx, `
			WITH RECURSIVE above AS (SELECT $1::bigint AS id UNION SELECT f.parent_id FROM file_server f JOIN above a ON f.id = a.id WHERE f.parent_id IS NOT NULL)
			SELECT EXISTS (SELECT FROM above WHERE id = $2)`, *b.Parent, id).Scan(&below)
		if err != nil {
			return fmt.Errorf("look for a cycle: %w", err)
		}
		if below {
			return problem.Member("/parent_id", "cycle", "is file server %d itself, or below it", id)
		}
	}
	if b.Group == nil || before.Group != nil && *before.Group == *b.Group { // one that stays may be about to be cleared
		return nil
	}
	return s.groups.Hold(ctx, tx, int64(*b.Group), "/group_id")
}

// deleteFileServer names what is in the way. Nothing comes into the way in between: see lockFileServers.
func deleteFileServer(ctx context.Context, tx *pg.Tx, f *FileServer) error {
	var child rest.Ref
	var more int64
	err := tx.QueryRow(ctx, "SELECT id, name, count(*) OVER () - 1 FROM file_server WHERE parent_id = $1 ORDER BY id LIMIT 1", f.ID).
		Scan(&child.ID, &child.Name, &more)
	switch {
	case err == nil && more == 0:
		return problem.New(problem.Conflict, "File server %d is the parent of file server %d (%s).", f.ID, child.ID, child.Name)
	case err == nil:
		return problem.New(problem.Conflict, "File server %d is the parent of file server %d (%s) and %d more.", f.ID, child.ID, child.Name, more)
	case !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("look for children: %w", err)
	}
	return reference.DeleteUnlessInstalls(ctx, tx, "file_server", "File server", "file_server_id", f.ID)
}

// clearGroup takes an IP group that is gone from the file servers of its site.
func clearGroup(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	return reference.Clear(
		ctx,
		tx,
		"file_server",
		"group_id",
		id,
		pg.Target{Type: "pxe/file", Noun: "file server"},
		map[string]any{"group": rest.Ref{ID: id, Name: name}},
	)
}
