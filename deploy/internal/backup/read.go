package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxManifest = 64 << 20 // bytes
	maxSecret   = 64 << 10 // bytes
)

// Archive is an open archive whose parts have been compared with their checksums.
type Archive struct {
	Manifest
	file  *os.File
	parts map[string]*io.SectionReader
	id    string // the checksum of the manifest
}

// Open opens an archive, and reads all of it. It returns an error that names the first part that is damaged, missing or added.
func Open(ctx context.Context, file string) (*Archive, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	a := &Archive{file: f, parts: map[string]*io.SectionReader{}}
	if err := a.read(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), f.Close())
	}
	return a, nil
}

// Close closes the archive's file.
func (a *Archive) Close() error { return a.file.Close() }

// read finds all parts, and compares them with the manifest.
func (a *Archive) read(ctx context.Context) error {
	sums, manifest, err := a.findParts(ctx)
	if err != nil {
		return err
	}
	if manifest == nil {
		return errors.New("the file is cut off, or is no backup: it has no manifest")
	}
	if err := json.Unmarshal(manifest, &a.Manifest); err != nil {
		return fmt.Errorf("%s is damaged: %w", manifestName, err)
	}
	if a.Format != format {
		return fmt.Errorf("the archive has the format %d, and this program reads %d; restore it with version %s", a.Format, format, a.Version)
	}
	for _, p := range a.Parts {
		switch sum, exists := sums[p.Name]; {
		case !exists:
			return fmt.Errorf("%s is missing", p.Name)
		case sum != p.SHA256:
			return fmt.Errorf("%s is damaged: its SHA-256 is %s, and the manifest has %s", p.Name, sum, p.SHA256)
		}
		delete(sums, p.Name)
	}
	for name := range sums {
		return fmt.Errorf("%s is in the archive, and not in its manifest", name)
	}
	sum := sha256.Sum256(manifest)
	a.id = hex.EncodeToString(sum[:])
	return nil
}

// findParts reads all entries, and returns the checksums of the parts and the text of the manifest.
func (a *Archive) findParts(ctx context.Context) (sums map[string]string, manifest []byte, err error) {
	sums = map[string]string{}
	last := "the beginning"
	for from := tar.NewReader(a.file); ; {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return sums, manifest, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("the file is damaged or cut off after %s: %w", last, err)
		}
		last = header.Name
		if !filepath.IsLocal(filepath.FromSlash(header.Name)) || header.Typeflag != tar.TypeReg || manifest != nil {
			return nil, nil, fmt.Errorf("unexpected entry %q", header.Name)
		}
		if header.Name == manifestName {
			if header.Size > maxManifest {
				return nil, nil, fmt.Errorf("%s has %d bytes, but at most %d are allowed", manifestName, header.Size, maxManifest)
			}
			if manifest, err = io.ReadAll(from); err != nil {
				return nil, nil, fmt.Errorf("%s is damaged or cut off: %w", manifestName, err)
			}
			continue
		}
		start, err := a.file.Seek(0, io.SeekCurrent) // the tar reader reads no further than it has to
		if err != nil {
			return nil, nil, err
		}
		hash := sha256.New()
		if _, err := io.Copy(hash, contextReader{ctx, from}); err != nil {
			return nil, nil, fmt.Errorf("%s is damaged or cut off: %w", header.Name, err)
		}
		a.parts[header.Name] = io.NewSectionReader(a.file, start, header.Size)
		sums[header.Name] = hex.EncodeToString(hash.Sum(nil))
	}
}

// text returns the text of a short part.
func (a *Archive) text(name string) (string, error) {
	part := a.parts[name]
	if part == nil {
		return "", fmt.Errorf("the archive does not have %s", name)
	}
	text, err := io.ReadAll(io.NewSectionReader(part, 0, min(part.Size(), maxSecret)))
	return strings.TrimSpace(string(text)), err
}

// hasStore tells whether the archive has files of the store.
func (a *Archive) hasStore() bool {
	for name := range a.parts {
		if strings.HasPrefix(name, storeFolder) {
			return true
		}
	}
	return false
}
