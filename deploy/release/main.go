// Release makes a release of the tagged commit in bin/release: an apt repository, the .rpm, the command line and the
// Terraform provider for other systems, with checksums, lists of contents (SBOM), notes and signatures. make release runs it.
// Two runs on one commit have the same bytes, except for the signatures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// buildTimeout bounds a run. Most of it compiles.
const buildTimeout = 3 * time.Hour

func main() {
	key := flag.String("key", "", "the `id` or address of the GnuPG key that signs")
	out := flag.String("out", "bin/release", "the `folder` of the release, which is made anew")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	err := run(ctx, *key, *out)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// source is the released commit.
type source struct {
	version string // without the v of the tag
	at      time.Time
}

func (s source) tag() string { return "v" + s.version }

// run checks everything that it can before it builds. A failed run leaves the last release.
func run(ctx context.Context, key, out string) error {
	sign, err := newSigner(ctx, key)
	if err != nil {
		return err
	}
	from, err := findSource(ctx)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	notes, err := extractNotes(string(changelog), from.version)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "ironplane-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	parts, err := build(ctx, from, scratch)
	if err != nil {
		return err
	}
	parts.notes = notes
	unfinished := out + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := assemble(ctx, from, parts, sign, unfinished); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.Rename(unfinished, out)
}

// findSource returns the commit, which must have a tag such as v1.2.0, and no changes.
func findSource(ctx context.Context) (source, error) {
	changes, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	if changes != "" {
		return source{}, errors.New("the working tree has changes: commit or remove them first")
	}
	tag, err := output(ctx, "git", "describe", "--tags", "--exact-match", "--match", "v[0-9]*")
	if err != nil {
		return source{}, fmt.Errorf("the commit has no tag such as v1.2.0: %w", err)
	}
	text, err := output(ctx, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return source{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return source{strings.TrimPrefix(tag, "v"), time.Unix(seconds, 0).UTC()}, err
}

// output runs a program and returns what it prints, without the space around it.
func output(ctx context.Context, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// parts are what a release is made of.
type parts struct {
	packages  []string  // .deb and .rpm files
	programs  []program // the command line
	providers []program // the Terraform provider
	contents  []string  // SBOMs
	notes     string
}

// program is a built program for one system.
type program struct{ system, architecture, file string }

// ending returns the ending of the program's file name.
func (p program) ending() string {
	if p.system == "windows" {
		return ".exe"
	}
	return ""
}

// assemble writes a release to a folder.
func assemble(ctx context.Context, from source, p parts, sign signer, out string) error {
	var debs []string
	for _, file := range p.packages {
		if strings.HasSuffix(file, ".deb") {
			debs = append(debs, file)
		} else if err := copyFile(file, filepath.Join(out, filepath.Base(file))); err != nil {
			return err
		}
	}
	if err := writeRepository(ctx, debs, from.at, sign, filepath.Join(out, "apt")); err != nil {
		return err
	}
	for _, one := range p.programs {
		name := fmt.Sprintf("ironplane_%s_%s_%s%s", from.version, one.system, one.architecture, one.ending())
		if err := copyFile(one.file, filepath.Join(out, name)); err != nil {
			return err
		}
	}
	if err := writeProvider(ctx, from, p.providers, sign, filepath.Join(out, "terraform")); err != nil {
		return err
	}
	for _, file := range p.contents {
		if err := copyFile(file, filepath.Join(out, "sbom", filepath.Base(file))); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(out, "notes.md"), []byte(linkNotes(p.notes, from.tag()))); err != nil {
		return err
	}
	sums := filepath.Join(out, "SHA256SUMS")
	if err := writeSums(out, sums); err != nil {
		return err
	}
	return sign.detachArmored(ctx, sums, sums+".asc")
}
