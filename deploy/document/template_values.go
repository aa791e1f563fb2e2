package main

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/ironplane/ironplane/pkg/template"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
	"github.com/ironplane/ironplane/services/system/mail"
)

// values are the variables and functions of a kind of template.
type values struct {
	Variables []template.Variable    `json:"variables"`
	Functions []template.FunctionDoc `json:"functions,omitempty"`
}

// templateValues returns the file with the values of all kinds of templates, which the console's editor lists.
func templateValues() ([]byte, error) {
	all := map[string]values{}
	for kind, variables := range mail.Variables() {
		all["email/"+kind] = values{Variables: variables}
	}
	for _, kind := range []script.Kind{script.Boot, script.Preseed, script.Shell} {
		variables, functions := kind.Values()
		all[string(kind)] = values{variables, functions}
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	err := out.Encode(all)
	return text.Bytes(), err
}

func writeTemplateValues(file string) error {
	text, err := templateValues()
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
