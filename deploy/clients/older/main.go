// Older converts an API document to OpenAPI 3.0, as the gateway does for ?version=3.0.
//
//	go run ./deploy/clients/older <docs/reference/openapi.json >openapi-3.0.json
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

func main() {
	if err := convert(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "older:", err)
		os.Exit(1)
	}
}

func convert(from io.Reader, to io.Writer) error {
	var document openapi.Document
	if err := json.NewDecoder(from).Decode(&document); err != nil {
		return fmt.Errorf("decode the document: %w", err)
	}
	older, err := document.Older()
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(older)
}
