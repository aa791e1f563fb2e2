// Document writes the generated pages of docs/reference: the API document, the policy, the error texts, the variables of
// templates and the environment variables. Run it in the repository's root.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
	"github.com/ironplane/ironplane/services/system/audit"
	"github.com/ironplane/ironplane/services/system/mail"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}

// write writes all generated documents to the folder in args, and the values of templates to the file in args.
func write(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: document FOLDER FILE")
	}
	document, err := product.Document()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetIndent("", " ")
	out.SetEscapeHTML(false)
	if err := out.Encode(document); err != nil {
		return fmt.Errorf("encode the API document: %w", err)
	}
	if err := os.WriteFile(filepath.Join(args[0], "openapi.json"), text.Bytes(), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], "email-variables.md"), []byte(mail.Reference()), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], "pxe-variables.md"), []byte(script.RenderReference()), 0o644); err != nil {
		return err
	}
	if err := writeTemplateValues(args[1]); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], "log.md"), []byte(audit.Reference()), 0o644); err != nil {
		return err
	}
	page, err := variables(".")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], "variables.md"), []byte(page), 0o644); err != nil {
		return err
	}
	texts, err := errorTexts(".")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], "errors.md"), []byte(errorsPage(texts)), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[0], "policy.md"), []byte(product.Policy()), 0o644)
}
