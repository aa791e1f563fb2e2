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

// FileServer is the agent at a site that holds the files for installations.
type FileServer struct {
	rest.Versioned
	ID                   int64     `json:"id" db:"id"`
	Name                 string    `json:"name" db:"name"`
	InstallMaxConcurrent int32     `json:"install_max_concurrent" db:"install_max_concurrent" doc:"How many installs the file server serves at a time."`
	Group                *rest.Ref `json:"group,omitempty" db:"group_" doc:"The IP group of the site. Left out after its deletion."`
	Parent               *rest.Ref `json:"parent,omitempty" db:"parent_" doc:"The file server that this one gets its files from. Left out if it gets them from the store."`
	HTTP                 HTTP      `json:"http" db:"http_" doc:"How the agent is called."`
	SSH                  SSH       `json:"ssh" db:"ssh_" doc:"How files are transferred by SFTP."`

	Health       *site.AgentHealth `json:"health,omitempty" ext:"true" doc:"The agent's health. Only with include=health."`
	HealthStatus string            `json:"-" db:"health"` // the filter of lists
}

// SSH is how files are transferred to a file server by SFTP.
type SSH struct {
	Port      int32  `json:"port" db:"port" doc:"The TCP port of SFTP."`
	PublicKey string `json:"public_key" db:"public_key" doc:"The public host key."`
	UseSFTP   bool   `json:"use_sftp" db:"use_sftp" ext:"true" doc:"Whether file contents are transferred by SFTP instead of HTTP."`
}

// fileServerBody is the body that creates or edits a file server.
type fileServerBody struct {
	Name                 string         `json:"name" db:"name" required:"create" example:"fra1-files1"`
	InstallMaxConcurrent int32          `json:"install_max_concurrent" db:"install_max_concurrent" required:"create" min:"1" max:"10000" example:"20" doc:"How many installs the file server serves at a time."`
	Group                *rest.RefID    `json:"group_id" db:"group_id" alias:"group" required:"create" example:"1" doc:"The id of the site's IP group, one of /group."`
	Parent               *rest.RefID    `json:"parent_id" db:"parent_id" alias:"parent" doc:"The id of the file server that this one gets its files from, one of /pxe/file. It cannot be a descendant of this one."`
	HTTP                 fileServerHTTP `json:"http" db:"http_" doc:"How the agent is called."`
	SSH                  sshBody        `json:"ssh" db:"ssh_" doc:"How files are transferred by SFTP."`
}

// fileServerHTTP has the fields of httpBody, but requires the port and the API key, too. The two types can be converted
// into each other.
type fileServerHTTP struct {
	Host     string         `json:"host" db:"host" alias:"host" required:"create" example:"files.fra1.example.net" doc:"The host name or address, without a scheme or port."`
	Port     *int32         `json:"port" db:"port" alias:"port" required:"create" min:"1" max:"65535" example:"8443" doc:"The TCP port."`
	UseHTTPS bool           `json:"use_https" db:"use_https" alias:"use_https" example:"true" doc:"Whether to call the agent by HTTPS."`
	APIKey   *secret.String `json:"api_key" db:"api_key" alias:"api_key" required:"create" example:"what the agent asks of its callers" doc:"The API key for calls to the agent, and the password of SFTP. It is stored encrypted and never shown. An empty value in an edit keeps the stored key."`

	Fingerprint *string `json:"fingerprint" db:"fingerprint" alias:"fingerprint" ext:"true" example:"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9" doc:"The SHA-256 fingerprint of the agent's certificate, as printed by site-agent fingerprint. Needed if no public authority has issued it."`
}

// sshBody is the part of a body about SFTP.
type sshBody struct {
	Port      int32  `json:"port" db:"port" min:"1" max:"65535" example:"22" doc:"The TCP port of SFTP. The default is 22."`
	PublicKey string `json:"public_key" db:"public_key" alias:"public_key" required:"create" max:"16384" lines:"true" example:"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG fra1-files1" doc:"The public host key as in an authorized_keys file: type, key and comment."`
	UseSFTP   bool   `json:"use_sftp" db:"use_sftp" alias:"use_sftp" ext:"true" example:"false" doc:"Whether file contents are transferred by SFTP, to this file server and from it to its children. Nothing is sent to a host with another key."`
}

const sshPort = 22

// Resolve checks what struct tags cannot express, and rewrites the public key in its canonical form.
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
		invalid.Add("/ssh/public_key", "invalid", "must be one SSH public key without options, such as: ssh-ed25519 AAAA… comment")
		return
	}
	b.SSH.PublicKey = string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))
	if comment != "" {
		b.SSH.PublicKey += " " + comment
	}
}

// fileServers returns the routes of file servers.
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
				one.Health, err = site.LoadHealth(ctx, q, site.FileServer, one.ID)
				return err
			},
		},
		List: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "host": "http_host"},
			Filters: map[string]string{"name": "name", "host": "http_host", "group_id": "group_id", "parent_id": "parent_id", "health": "health"}},
	}.Routes()
}

// lockFileServers makes transactions that write file servers run one after the other. So the check for cycles stays
// valid until the commit.
func lockFileServers(ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*fileServerBody) error {
	return tx.Lock(ctx, "file servers", 0)
}

// checkFileServer refuses a move without the API key and a parent that would make a cycle. It holds a new IP group until
// the commit, so that the group is not deleted meanwhile.
func (s *Service) checkFileServer(ctx context.Context, tx *pg.Tx, id int64, before, b *fileServerBody) error {
	if before == nil {
		before = &fileServerBody{}
	} else if err := (*httpBody)(&b.HTTP).requireKey((*httpBody)(&before.HTTP)); err != nil {
		return err
	} else if err := remote.RequireKey(
		b.SSH.UseSFTP && b.SSH != before.SSH, b.HTTP.APIKey, "/http/api_key",
	); err != nil { // the API key is the password of SFTP
		return err
	}
	if b.Parent != nil && id != 0 {
		var below bool
		err := tx.QueryRow(ctx, `
			WITH RECURSIVE above AS (SELECT $1::bigint AS id UNION SELECT f.parent_id FROM file_server f JOIN above a ON f.id = a.id WHERE f.parent_id IS NOT NULL)
			SELECT EXISTS (SELECT FROM above WHERE id = $2)`, *b.Parent, id).Scan(&below)
		if err != nil {
			return fmt.Errorf("check for a cycle: %w", err)
		}
		if below {
			return problem.Member("/parent_id", "cycle", "cannot be file server %d itself or one of its descendants", id)
		}
	}
	if b.Group == nil || before.Group != nil && *before.Group == *b.Group { // an unchanged group may be about to be cleared
		return nil
	}
	return s.groups.Hold(ctx, tx, int64(*b.Group), "/group_id")
}

// deleteFileServer deletes a file server, unless it has children or unfinished installs. lockFileServers keeps new
// children out until the commit.
func deleteFileServer(ctx context.Context, tx *pg.Tx, f *FileServer) error {
	var child rest.Ref
	var more int64
	err := tx.QueryRow(ctx, "SELECT id, name, count(*) OVER () - 1 FROM file_server WHERE parent_id = $1 ORDER BY id LIMIT 1", f.ID).
		Scan(&child.ID, &child.Name, &more)
	switch {
	case err == nil && more == 0:
		return problem.New(
			problem.Conflict,
			"File server %d is the parent of file server %d (%s). Move or delete its children first.",
			f.ID,
			child.ID,
			child.Name,
		)
	case err == nil:
		return problem.New(
			problem.Conflict,
			"File server %d is the parent of file server %d (%s) and %d more. Move or delete its children first.",
			f.ID,
			child.ID,
			child.Name,
			more,
		)
	case !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("find the children: %w", err)
	}
	return reference.DeleteUnlessInstalls(ctx, tx, "file_server", "File server", "file_server_id", f.ID)
}

// clearGroup removes a deleted IP group from the file servers of its site.
func clearGroup(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	return reference.ClearReferences(
		ctx,
		tx,
		"file_server",
		"group_id",
		id,
		pg.Target{Type: "pxe/file", Noun: "file server"},
		map[string]any{"group": rest.Ref{ID: id, Name: name}},
	)
}
