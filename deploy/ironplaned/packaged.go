package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// layout is where the package has the settings and the data of an installation.
type layout struct {
	settings string // the folder of environment files
	secrets  string // of an installation with several processes
	data     string // of one in one process
}

var packaged = layout{"/etc/ironplane", "/etc/ironplane/secrets", "/var/lib/ironplane"}

// complete returns the arguments of the program that runs a command on the installation of this machine, and its environment.
// IRONPLANE_DATA or IRONPLANE_SECRETS chooses the installation. Without them there has to be one in the package's folders, whose
// settings are added.
func (l layout) complete(arguments, environment []string) ([]string, []string, error) {
	data, secrets := valueOf(environment, "IRONPLANE_DATA"), valueOf(environment, "IRONPLANE_SECRETS")
	if data == "" && secrets == "" {
		data, secrets = l.find()
	}
	switch {
	case data != "" && secrets != "":
		return nil, nil, fmt.Errorf("set either IRONPLANE_DATA, such as %s, for one process, or IRONPLANE_SECRETS, such as %s, for several",
			l.data, l.secrets)
	case data != "":
		environment, err := l.addSettings(environment, "IRONPLANE_DATA="+data, data == l.data, "standalone.env")
		return append([]string{"standalone"}, arguments...), environment, err
	case secrets != "":
		environment, err := l.addSettings(environment, "IRONPLANE_SECRETS="+secrets, secrets == l.secrets, "ironplane.env", "pxe.env")
		return append([]string{"setup"}, arguments...), environment, err
	}
	return nil, nil, fmt.Errorf(
		"neither %s nor %s has an installation that this user can read; set IRONPLANE_DATA for one process, or IRONPLANE_SECRETS for several",
		l.data, l.secrets)
}

// find returns the folder of the installation in the package's folders. Both are set if there are two.
func (l layout) find() (data, secrets string) {
	if found, _ := filepath.Glob(filepath.Join(l.data, "*")); len(found) > 0 {
		data = l.data
	}
	if _, err := os.Stat(filepath.Join(l.secrets, "setup", "master-key")); err == nil {
		secrets = l.secrets
	}
	return data, secrets
}

// addSettings returns an environment with a variable and, for the package's installation, the variables in its files that are not set.
func (l layout) addSettings(environment []string, variable string, isPackaged bool, files ...string) ([]string, error) {
	environment = append(slices.Clone(environment), variable)
	if !isPackaged {
		return environment, nil
	}
	if valueOf(environment, "IRONPLANE_BACKUP_SETTINGS") == "" {
		environment = append(environment, "IRONPLANE_BACKUP_SETTINGS="+l.settings)
	}
	for _, file := range slices.Backward(files) { // as in the units, a later file overrides an earlier one
		text, err := os.ReadFile(filepath.Join(l.settings, file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			name, value, isSet := strings.Cut(strings.TrimSpace(line), "=")
			if !isSet || strings.HasPrefix(name, "#") || strings.HasPrefix(name, ";") || valueOf(environment, name) != "" {
				continue
			}
			if file := name + "_FILE"; valueOf(environment, file) != "" { // somebody has chosen another source of this secret
				continue
			}
			environment = append(environment, name+"="+strings.Trim(value, `"'`))
		}
	}
	return environment, nil
}

// valueOf returns the value of a variable in an environment.
func valueOf(environment []string, name string) (value string) {
	for _, entry := range environment {
		if n, v, _ := strings.Cut(entry, "="); n == name {
			value = v
		}
	}
	return value
}
