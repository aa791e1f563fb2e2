package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// writeFile writes a file, and makes its folder.
func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// copyFile copies a file with its mode, and makes the folder.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	is, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, is.Mode().Perm()&0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// sumFile returns a file's SHA-256 and size.
func sumFile(file string) (sum string, size int64, err error) {
	in, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, in)
	return hex.EncodeToString(hash.Sum(nil)), size, err
}

// isSignature reports whether a file of a release is a signature or a key. Those differ between two runs, or prove
// themselves.
func isSignature(name string) bool {
	switch filepath.Ext(name) {
	case ".asc", ".gpg", ".sig":
		return true
	}
	return filepath.Base(name) == "InRelease"
}

// writeSums writes the checksums of all files in a folder, in the form of sha256sum.
func writeSums(folder, to string) error {
	var lines bytes.Buffer
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || isSignature(path) {
			return err
		}
		sum, _, err := sumFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		fmt.Fprintf(&lines, "%s  %s\n", sum, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	return writeFile(to, lines.Bytes())
}

// manifest says which protocol of Terraform the provider speaks.
const manifest = `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}` + "\n"

// writeProvider writes the Terraform provider as registries of providers want it: a zip for each system, a manifest,
// checksums and their signature.
func writeProvider(ctx context.Context, from source, providers []program, sign signer, out string) error {
	prefix := filepath.Join(out, "terraform-provider-ironplane_"+from.version)
	for _, one := range providers {
		name := "terraform-provider-ironplane_" + from.tag() + one.ending()
		if err := writeZip(prefix+"_"+one.system+"_"+one.architecture+".zip", name, one.file, from.at); err != nil {
			return err
		}
	}
	if err := writeFile(prefix+"_manifest.json", []byte(manifest)); err != nil {
		return err
	}
	sums := prefix + "_SHA256SUMS"
	if err := writeSums(out, sums); err != nil {
		return err
	}
	return sign.detach(ctx, sums, sums+".sig")
}

// writeZip writes an archive with one program.
func writeZip(to, name, file string, at time.Time) error {
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	if err := writeFile(to, nil); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(out)
	header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
	header.SetMode(0o755)
	entry, err := archive.CreateHeader(header)
	if err == nil {
		_, err = io.Copy(entry, content)
	}
	return errors.Join(err, archive.Close(), out.Close())
}
