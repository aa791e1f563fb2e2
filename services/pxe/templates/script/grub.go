package script

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// macSetting stands for the MAC address of the interface that the machine boots from, with dashes.
const macSetting = "\x00"

// macScript sets the variable mac of GRUB to that address.
const macScript = `regexp --set=1:a --set=2:b --set=3:c --set=4:d --set=5:e --set=6:f '(..):(..):(..):(..):(..):(..)' "$net_default_mac"
set mac="$a-$b-$c-$d-$e-$f"
`

// ToGRUB translates a rendered boot script into a script for GRUB, which has a signature that firmware with Secure Boot accepts. iPXE
// has none. It translates what a script needs that boots Linux: comments, set, echo, kernel, initrd and boot. GRUB checks the
// signature of the kernel. It loads files by TFTP, from the file server with this base URL. Errors name lines and no text of them,
// because a line may have the install's token.
func ToGRUB(bootScript, files string) (string, error) {
	t := grubTranslator{files: files, variables: map[string]string{}, left: maxExpanded}
	number := 0
	for line := range strings.Lines(bootScript) {
		number++
		if err := t.translate(strings.TrimSpace(line)); err != nil {
			return "", fmt.Errorf("line %d: %w", number, err)
		}
	}
	if !t.boots {
		return "", fmt.Errorf("line %d: the script ends without boot", number)
	}
	if text := t.out.String(); strings.Contains(text, "$mac") {
		return macScript + text, nil
	}
	return t.out.String(), nil
}

// grubTranslator translates a boot script line by line.
type grubTranslator struct {
	files     string // the file server's base URL
	variables map[string]string
	left      int // bytes that variables can still add
	hasKernel bool
	initrds   []string
	boots     bool
	out       strings.Builder
}

func (t *grubTranslator) translate(line string) error {
	command, rest, _ := strings.Cut(line, " ")
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	if strings.ContainsFunc(strings.ReplaceAll(line, "\t", ""), unicode.IsControl) {
		return errors.New("control characters cannot be translated for GRUB")
	}
	if strings.Contains(line, "||") || strings.Contains(line, "&&") {
		return errors.New("|| and && cannot be translated for GRUB")
	}
	name, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if command == "set" {
		rest = value
	}
	text, err := t.expand(strings.TrimSpace(rest))
	if err != nil {
		return err
	}
	words := strings.Fields(text)
	switch {
	case t.boots:
		return errors.New("nothing can follow boot")
	case command == "set":
		t.variables[name] = text
	case command == "echo":
		fmt.Fprintf(&t.out, "echo %s\n", quoteGRUB(text))
	case command == "kernel" && len(words) > 0:
		return t.kernel(words)
	case command == "initrd" && len(words) > 0:
		path, err := t.path(words[0])
		if err == nil && len(words) > 1 {
			err = errors.New("GRUB cannot give an initrd a name")
		}
		t.initrds = append(t.initrds, path)
		return err
	case command == "boot" && t.hasKernel:
		t.boots = true
		if len(t.initrds) > 0 {
			fmt.Fprintf(&t.out, "initrd %s\n", strings.Join(t.initrds, " "))
		}
		t.out.WriteString("boot\n")
	default:
		return errors.New("only set, echo, kernel, initrd, and boot after a kernel can be translated for GRUB")
	}
	return nil
}

// kernel translates a kernel with its arguments. Those that name an initrd are for iPXE.
func (t *grubTranslator) kernel(words []string) error {
	path, err := t.path(words[0])
	if err != nil {
		return err
	}
	if t.hasKernel {
		return errors.New("a second kernel cannot be loaded")
	}
	t.hasKernel = true
	t.out.WriteString("linux " + path)
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "initrd=") {
			continue
		}
		if strings.ContainsAny(word, `'"\`) {
			return errors.New("GRUB cannot pass quotes and backslashes on to the kernel")
		}
		t.out.WriteString(" " + quoteGRUB(word))
	}
	t.out.WriteString("\n")
	return nil
}

var errNoSetting = errors.New("GRUB has no settings of iPXE, except for the MAC address: ${netX/mac:hexhyp}")

// expand replaces the variables of a line.
func (t *grubTranslator) expand(line string) (expanded string, err error) {
	expanded = iPXEVariable.ReplaceAllStringFunc(line, func(reference string) string {
		name := reference[2 : len(reference)-1]
		value, ok := t.variables[name]
		if name == "netX/mac:hexhyp" || name == "net0/mac:hexhyp" {
			value, ok = macSetting, true
		}
		if !ok && err == nil {
			err = errNoSetting
		}
		if t.left -= len(value); t.left < 0 && err == nil {
			err = fmt.Errorf("the variables have more than %d bytes", maxExpanded)
		}
		if err != nil {
			return ""
		}
		return value
	})
	if err == nil && strings.Contains(expanded, "${") {
		err = errNoSetting
	}
	return expanded, err
}

// path returns the address of a file as GRUB names it.
func (t *grubTranslator) path(address string) (string, error) {
	server, err := url.Parse(t.files)
	if err != nil {
		return "", fmt.Errorf("parse the address of the file server: %w", err)
	}
	path, ok := strings.CutPrefix(address, t.files+"/")
	if !ok || path == "" || strings.ContainsAny(server.Host, "[(),'") {
		return "", fmt.Errorf("GRUB loads files from the file server %s only", t.files)
	}
	return quoteGRUB("(tftp," + server.Hostname() + ")/" + path), nil
}

// quoteGRUB quotes a text for GRUB's scripts.
func quoteGRUB(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	return strings.ReplaceAll(quoted, macSetting, `'"$mac"'`)
}
