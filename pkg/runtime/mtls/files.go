package mtls

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Files are the paths of a process's identity, in PEM.
type Files struct {
	Certificate string `env:"IRONPLANE_MESH_CERTIFICATE" doc:"the file with this process's certificate, for the name spiffe://ironplane/<name>"`
	Key         string `env:"IRONPLANE_MESH_KEY" doc:"the file with the certificate's private key"`
	CA          string `env:"IRONPLANE_MESH_CA" doc:"the file with the authority's certificates, by which processes verify each other"`
}

// Load reads the identity of the process with this name. It fails if the certificate is for another name.
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

// filesContent is the content of Files.
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

// followInterval is how often the files are read again.
const followInterval = 10 * time.Second

// Follow renews the identity when its files change, until ctx ends. The files may be written one after the other: while they
// do not match, the old identity remains in use.
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
			log.Error("new certificate cannot be used", "files", files.String(), "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
