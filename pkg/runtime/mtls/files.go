package mtls

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Files are where a process finds its identity, in PEM.
type Files struct {
	Certificate string `env:"IRONPLANE_MESH_CERTIFICATE" doc:"the file of this process's certificate, which names it spiffe://ironplane/<name>"`
	Key         string `env:"IRONPLANE_MESH_KEY" doc:"the file of the certificate's private key"`
	CA          string `env:"IRONPLANE_MESH_CA" doc:"the file of the authority's certificates, by which processes verify each other"`
}

// Load reads the identity of the process of this name, and fails where the files give it another one.
func Load(name string, files Files) (*Identity, error) {
	content, err := files.read()
	if err != nil {
		return nil, fmt.Errorf("read the identity of %s: %w", name, err)
	}
	id, err := NewIdentity(name, content.issued, content.ca)
	if err != nil {
		return nil, fmt.Errorf("read the identity of %s from %s: %w", name, files, err)
	}
	return id, nil
}

func (f Files) String() string { return f.Certificate + ", " + f.Key + " and " + f.CA }

// filesContent is what is in them.
type filesContent struct {
	issued Issued
	ca     []byte
}

func (f Files) read() (filesContent, error) {
	var content [3][]byte
	for i, file := range []string{f.Certificate, f.Key, f.CA} {
		var err error
		if content[i], err = os.ReadFile(file); err != nil {
			return filesContent{}, err
		}
	}
	return filesContent{Issued{content[0], secret.New(string(content[1]))}, content[2]}, nil
}

// followInterval is how long new files may lie before they count.
const followInterval = 10 * time.Second

// Follow renews the identity when its files change, until ctx ends. They may be written one after the other: as long as
// they do not fit together, the old ones count.
func (id *Identity) Follow(ctx context.Context, files Files, log *slog.Logger) {
	id.follow(ctx, files, followInterval, log)
}

func (id *Identity) follow(ctx context.Context, files Files, interval time.Duration, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last, lastError string
	for {
		content, err := files.read()
		text := string(content.issued.Certificate) + content.issued.Key.Reveal() + string(content.ca)
		if err == nil && text != last {
			if err = id.Renew(content.issued, content.ca); err == nil {
				last, lastError = text, ""
			}
		}
		if err != nil && err.Error() != lastError {
			lastError = err.Error()
			log.Error("the process's new certificate cannot be used", "files", files.String(), "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
