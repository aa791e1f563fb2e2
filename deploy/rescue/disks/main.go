// Command ironplane-disks chooses, protects, mirrors and wipes the disks of a machine that runs the system in memory. Profiles call it in
// their preseeds. See docs/do/disks.md.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const usage = `usage:
  ironplane-disks choose [-keep SELECTORS] SELECTORS  protect the disks to keep, and print the disk to write to. Two selectors make a RAID 1
  ironplane-disks wipe [-keep SELECTORS] [SELECTORS]  make disks read as zeros, all without SELECTORS, and print a line of JSON on each
  ironplane-disks raw FILE                            print the content of the disk in a qcow2 file

SELECTORS are separated by commas. Each is ` + selectorHelp

// machine is the machine whose disks these are.
type machine struct {
	run func(name string, arguments ...string) ([]byte, error) // runs a program and returns its output
}

func main() {
	m := machine{run: func(name string, arguments ...string) ([]byte, error) {
		output, err := exec.Command(name, arguments...).Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(failed.Stderr)))
		}
		return output, err
	}}
	if err := m.do(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// do runs a command with its arguments, and writes its output to out.
func (m *machine) do(arguments []string, out io.Writer) error {
	if len(arguments) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	keep := flags.String("keep", "", "")
	if err := flags.Parse(arguments[1:]); err != nil {
		return fmt.Errorf("%w\n%s", err, usage)
	}
	switch command := arguments[0]; {
	case command == "choose" && flags.NArg() == 1:
		path, err := m.choose(split(flags.Arg(0)), split(*keep))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, path)
		return err
	case command == "wipe" && flags.NArg() <= 1:
		reports, err := m.wipeAll(split(flags.Arg(0)), split(*keep))
		if err != nil {
			return err
		}
		lines := json.NewEncoder(out)
		for _, r := range reports {
			if err := lines.Encode(r); err != nil {
				return err
			}
		}
		return nil
	case command == "raw" && flags.NArg() == 1:
		return printRaw(flags.Arg(0), out)
	}
	return errors.New(usage)
}

// split returns the selectors in a text.
func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// load returns the machine's disks.
func (m *machine) load() ([]disk, error) {
	output, err := m.run("lsblk", "--json", "--bytes", "--nodeps", "--output", lsblkColumns)
	if err != nil {
		return nil, err
	}
	return parseDisks(output)
}

// choose protects the disks to keep, and returns the path of the disk that the selectors name. Two of them become a RAID 1.
func (m *machine) choose(selectors, keep []string) (string, error) {
	if len(selectors) == 0 || len(selectors) > 2 {
		return "", fmt.Errorf("got %d disks to write to, want one, or two for a RAID 1", len(selectors))
	}
	disks, err := m.load()
	if err != nil {
		return "", err
	}
	chosen, kept, err := choose(disks, selectors, keep)
	if err != nil {
		return "", err
	}
	if err := m.protect(kept); err != nil {
		return "", err
	}
	if len(chosen) == 1 {
		return chosen[0].Path, nil
	}
	return m.mirror(chosen[0], chosen[1])
}

// protect makes disks and their partitions read-only until the machine restarts.
func (m *machine) protect(disks []disk) error {
	for _, d := range disks {
		output, err := m.run("lsblk", "--noheadings", "--list", "--paths", "--output", "PATH", d.Path)
		if err != nil {
			return err
		}
		for _, path := range strings.Fields(string(output)) {
			if _, err := m.run("blockdev", "--setro", path); err != nil {
				return fmt.Errorf("protect %s: %w", d, err)
			}
		}
	}
	return nil
}

const mirrorPath = "/dev/md0"

// mirror makes a RAID 1 of two disks and returns its path. Its data stand at the end of the disks, so firmware boots each of them.
func (m *machine) mirror(a, b disk) (string, error) {
	for _, d := range []disk{a, b} {
		_, _ = m.run("mdadm", "--zero-superblock", d.Path) // most disks have none
	}
	if _, err := m.run("mdadm", "--create", mirrorPath, "--run", "--level=1", "--raid-devices=2", "--metadata=1.0", "--homehost=any",
		"--name=system", a.Path, b.Path); err != nil {
		return "", fmt.Errorf("make a RAID 1 of %s and %s: %w", a, b, err)
	}
	_, err := m.run("udevadm", "settle")
	return mirrorPath, err
}

// wipeAll wipes the disks that the selectors name, or all that are not kept. It returns a report on each.
func (m *machine) wipeAll(selectors, keep []string) ([]report, error) {
	disks, err := m.load()
	if err != nil {
		return nil, err
	}
	chosen, kept, err := choose(disks, selectors, keep)
	if err != nil {
		return nil, err
	}
	if err := m.protect(kept); err != nil {
		return nil, err
	}
	if len(selectors) == 0 {
		chosen = slices.DeleteFunc(disks, func(d disk) bool { return contains(kept, d) })
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("there is no disk to wipe besides those to keep: %s", list(kept))
	}
	reports := make([]report, 0, len(chosen))
	for _, d := range chosen {
		if d.ReadOnly {
			return nil, fmt.Errorf("%s cannot be wiped because it is read-only", d)
		}
		r, err := m.wipe(d)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// printRaw writes the content of the disk in a qcow2 file.
func printRaw(path string, out io.Writer) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	image, err := openQCOW2(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	if err := image.writeTo(buffered); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return buffered.Flush()
}
