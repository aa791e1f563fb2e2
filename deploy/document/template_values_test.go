package main

import (
	"os"
	"testing"
)

// TestTemplateValuesOfTheConsole says that the console's file has the present variables and functions.
func TestTemplateValuesOfTheConsole(t *testing.T) {
	t.Parallel()
	want, err := templateValues()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../gateway/console/templates.gen.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("got another gateway/console/templates.gen.json (%v): run make openapi", err)
	}
}
