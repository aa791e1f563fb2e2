package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// deb is a package for Debian.
type deb struct {
	control string // its fields, as dpkg reads them
	file    string
}

// field returns a field of the package in one line.
func (d deb) field(name string) string {
	for line := range strings.Lines(d.control) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// pool returns where a repository has the package.
func (d deb) pool() string {
	name := d.field("Package")
	return path.Join("pool/main", name[:1], name, fmt.Sprintf("%s_%s_%s.deb", name, d.field("Version"), d.field("Architecture")))
}

// maxControl bounds the fields of a package.
const maxControl = 1 << 20

// readDeb reads the fields of a package.
func readDeb(file string) (deb, error) {
	d := deb{file: file}
	in, err := os.Open(file)
	if err != nil {
		return d, err
	}
	defer in.Close()
	if d.control, err = readControl(in); err != nil {
		return d, fmt.Errorf("%s: %w", file, err)
	}
	for _, name := range []string{"Package", "Version", "Architecture"} {
		if value := d.field(name); value == "" || strings.ContainsAny(value, "/ ") {
			return d, fmt.Errorf("%s: the field %s is missing or malformed", file, name)
		}
	}
	return d, nil
}

// readControl finds the file control in the archive of a package: ar with a compressed tar.
func readControl(in io.Reader) (string, error) {
	const magic, headerSize = "!<arch>\n", 60
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(in, begin); err != nil || string(begin) != magic {
		return "", errors.New("it is no package of Debian")
	}
	for {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(in, header); err != nil {
			return "", errors.New("it has no control.tar")
		}
		name := strings.TrimRight(strings.TrimSpace(string(header[:16])), "/")
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil || size < 0 {
			return "", errors.New("the archive is malformed")
		}
		if strings.HasPrefix(name, "control.tar") {
			return readMember(io.LimitReader(in, size), path.Ext(name))
		}
		if _, err := io.CopyN(io.Discard, in, size+size%2); err != nil {
			return "", errors.New("the archive is cut off")
		}
	}
}

// readMember returns the file control of a tar with this compression.
func readMember(in io.Reader, compression string) (string, error) {
	switch compression {
	case ".gz":
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return "", err
		}
		in = unpacked
	case ".zst":
		unpacked, err := zstd.NewReader(in)
		if err != nil {
			return "", err
		}
		defer unpacked.Close()
		in = unpacked
	case ".tar":
	default:
		return "", fmt.Errorf("control.tar%s has an unknown compression, want gzip or zstd", compression)
	}
	archive := tar.NewReader(io.LimitReader(in, maxControl))
	for {
		header, err := archive.Next()
		if err != nil {
			return "", fmt.Errorf("find the file control: %w", err)
		}
		if path.Clean(header.Name) == "control" {
			text, err := io.ReadAll(archive)
			return strings.TrimSpace(string(text)) + "\n", err
		}
	}
}

// writeRepository writes an apt repository with the suite stable and the component main, and the public key beside it.
func writeRepository(ctx context.Context, files []string, at time.Time, sign signer, out string) error {
	var debs []deb
	for _, file := range files {
		d, err := readDeb(file)
		if err != nil {
			return err
		}
		if err := copyFile(file, filepath.Join(out, d.pool())); err != nil {
			return err
		}
		debs = append(debs, d)
	}
	slices.SortFunc(debs, func(a, b deb) int { return strings.Compare(a.pool(), b.pool()) })
	var architectures []string
	for _, d := range debs {
		if one := d.field("Architecture"); one != "all" && !slices.Contains(architectures, one) {
			architectures = append(architectures, one)
		}
	}
	slices.Sort(architectures)
	suite := filepath.Join(out, "dists/stable")
	for _, architecture := range architectures {
		if err := writeIndex(debs, architecture, filepath.Join(suite, "main/binary-"+architecture)); err != nil {
			return err
		}
	}
	sums, err := describeIndexes(suite, architectures)
	if err != nil {
		return err
	}
	release := filepath.Join(suite, "Release")
	text := fmt.Sprintf("Origin: Ironplane\nLabel: Ironplane\nSuite: stable\nCodename: stable\nDate: %s\nArchitectures: %s\n"+
		"Components: main\nDescription: packages of Ironplane\nSHA256:\n%s",
		at.UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"), strings.Join(architectures, " "), sums)
	key, err := sign.public(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(release, []byte(text)),
		sign.clear(ctx, release, filepath.Join(suite, "InRelease")),
		sign.detachArmored(ctx, release, release+".gpg"),
		writeFile(filepath.Join(out, "ironplane.asc"), key),
	)
}

// writeIndex writes Packages and Packages.gz of an architecture.
func writeIndex(debs []deb, architecture, folder string) error {
	var text, packed bytes.Buffer
	for _, d := range debs {
		if one := d.field("Architecture"); one != architecture && one != "all" {
			continue
		}
		sum, size, err := sumFile(d.file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%sFilename: %s\nSize: %d\nSHA256: %s\n\n", d.control, d.pool(), size, sum)
	}
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write(text.Bytes())
	if err = errors.Join(err, zip.Close()); err != nil {
		return err
	}
	plain := filepath.Join(folder, "Packages")
	return errors.Join(writeFile(plain, text.Bytes()), writeFile(plain+".gz", packed.Bytes()))
}

// describeIndexes returns the checksums of the indexes in the form of a Release file.
func describeIndexes(suite string, architectures []string) (string, error) {
	var lines strings.Builder
	for _, architecture := range architectures {
		for _, file := range []string{"Packages", "Packages.gz"} {
			name := path.Join("main/binary-"+architecture, file)
			sum, size, err := sumFile(filepath.Join(suite, name))
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&lines, " %s %d %s\n", sum, size, name)
		}
	}
	return lines.String(), nil
}
