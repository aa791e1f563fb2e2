package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// cyclonedx lists the modules in a program.
const cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// versioned is the variable of a program's version.
const versioned = "github.com/ironplane/ironplane/pkg/runtime/process.version"

// build compiles the commit in the working folder.
func build(ctx context.Context, from source, scratch string) (p parts, err error) {
	if err := execute(ctx, nil, "make", "--no-print-directory", "packages"); err != nil {
		return p, err
	}
	for _, pattern := range []string{"*.deb", "*.rpm"} {
		found, err := filepath.Glob(filepath.Join("bin/packages", pattern))
		if err != nil || len(found) != 1 {
			return p, errors.Join(fmt.Errorf("got %q from make packages, want one %s", found, pattern), err)
		}
		p.packages = append(p.packages, found...)
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, architecture := range []string{"amd64", "arm64"} {
			one, err := compile(ctx, from, scratch, system, architecture, "ironplane", "./deploy/cli/ironplane")
			if err != nil {
				return p, err
			}
			p.programs = append(p.programs, one)
			one, err = compile(ctx, from, scratch, system, architecture, "terraform-provider-ironplane", "./deploy/terraform-provider")
			if err != nil {
				return p, err
			}
			p.providers = append(p.providers, one)
		}
	}
	listed := []string{"bin/package/ironplaned", "bin/package/ironplane", "bin/package/site-agent", p.providers[0].file}
	for _, file := range listed {
		one, err := listContents(ctx, from, scratch, file)
		if err != nil {
			return p, err
		}
		p.contents = append(p.contents, one)
	}
	return p, nil
}

// compile builds a static program for a system.
func compile(ctx context.Context, from source, scratch, system, architecture, name, folder string) (program, error) {
	one := program{system: system, architecture: architecture}
	one.file = filepath.Join(scratch, system+"_"+architecture, name+one.ending())
	environment := []string{"GOOS=" + system, "GOARCH=" + architecture, "CGO_ENABLED=0", "GOFLAGS=-trimpath"}
	return one, execute(ctx, environment, "go", "build", "-ldflags", "-s -w -X "+versioned+"="+from.tag(), "-o", one.file, folder)
}

// listContents writes the modules in a program as an SBOM in the form of CycloneDX.
func listContents(ctx context.Context, from source, scratch, file string) (sbom string, err error) {
	sbom = filepath.Join(scratch, filepath.Base(file)+".cdx.json")
	return sbom, execute(ctx, []string{"GOFLAGS=-trimpath", "CGO_ENABLED=0"}, "go", "run", cyclonedx,
		"bin", "-json", "-std", "-noserial", "-notimestamp", "-version", from.tag(), "-output", sbom, file)
}

// execute runs a program with further variables. It prints what the program prints.
func execute(ctx context.Context, environment []string, name string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, arguments[0], err)
	}
	return nil
}
