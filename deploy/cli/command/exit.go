package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/apply"
	"github.com/ironplane/ironplane/deploy/cli/lookup"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// exits are the exit codes by kind of error. The first kind that fits holds. docs/do/command-line.md has the same table.
var exits = []struct {
	kind error
	code int
	doc  string
}{
	{errUsage, 2, "The command, an argument or a flag is wrong. Nothing was sent."},
	{lookup.ErrNoID, 2, ""},
	{errNotSignedIn, 3, "There is no key, or the API does not accept it (401)."},
	{client.ErrUnauthorized, 3, ""},
	{client.ErrForbidden, 4, "The key lacks a permission (403)."},
	{client.ErrNotFound, 5, "The item does not exist, or no item has the name (404)."},
	{client.ErrConflict, 6, "The item's state, or another item, is in the way (409)."},
	{client.ErrStale, 7, "The item has changed since (412)."},
	{client.ErrInvalid, 8, "Members are invalid (400, 422)."},
	{client.ErrBadRequest, 8, ""},
	{client.ErrRateLimited, 9, "Too many requests, also after retries (429)."},
	{client.ErrUnknownOutcome, 11, "No response says whether the change was made. Look before you repeat it."},
	{client.ErrUnreachable, 10, ""},
	{client.ErrUnavailable, 10, "The API cannot be reached, or is not available (502, 503, 504)."},
	{lookup.ErrAmbiguous, 12, "Several items have the name. The error lists them."},
	{errEnded, 13, "The job or install has ended without success."},
	{errTimeout, 14, "The job or install has not ended within --timeout."},
	{errInterrupted, 130, "The command was interrupted."},
}

var (
	errUsage       = errors.New("wrong usage")
	errNotSignedIn = errors.New("not signed in")
	errEnded       = errors.New("ended without success")
	errTimeout     = errors.New("has not ended in time")
	errInterrupted = errors.New("interrupted")
)

// usageError is an error of the caller that was found before anything was sent.
type usageError struct{ error }

func (usageError) Is(target error) bool { return target == errUsage }

// usage returns err as an error of the caller, or nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

type notSignedIn struct{ text string }

func (e *notSignedIn) Error() string        { return e.text }
func (e *notSignedIn) Is(target error) bool { return target == errNotSignedIn }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	for _, e := range exits {
		if errors.Is(err, e.kind) {
			return e.code
		}
	}
	if strings.HasPrefix(err.Error(), "unknown command") { // cobra has no type for it
		return 2
	}
	return 1
}

// printError prints an error. Of a refusal it prints each invalid member with its flag, and what is in the way.
func printError(to io.Writer, command *cobra.Command, err error) {
	if stopped, ok := errors.AsType[*apply.Stopped](err); ok {
		fmt.Fprintf(to, "Stopped at %s.\n", stopped.Item)
		if stopped.Done != "" {
			fmt.Fprintf(to, "Before that: %s. Run the command again to do the rest.\n", stopped.Done)
		}
		err = stopped.Unwrap()
	}
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok {
		fmt.Fprintln(to, "ironplane:", err)
		if errors.Is(err, errUsage) {
			fmt.Fprintf(to, "Run \"%s --help\".\n", command.CommandPath())
		}
		return
	}
	text := refusal.Detail
	if text == "" || len(refusal.Fields) > 0 {
		text = refusal.Title
	}
	fmt.Fprintf(to, "ironplane: %d: %s", refusal.Status, text)
	if refusal.RequestID != "" {
		fmt.Fprintf(to, " (request %s)", refusal.RequestID)
	}
	fmt.Fprintln(to)
	for _, f := range refusal.Fields {
		name := f.Pointer
		if flag := flagOf(command, f.Pointer); flag != "" {
			name += " (--" + flag + ")"
		}
		if f.Line > 0 {
			name = fmt.Sprintf("line %d %s", f.Line, name)
		}
		fmt.Fprintf(to, "  %s: %s\n", name, f.Message)
		if f.Existing != nil && !strings.Contains(f.Message, f.Existing.Name) {
			fmt.Fprintf(to, "    in the way: %s (%d)\n", f.Existing.Name, f.Existing.ID)
		}
	}
	if errors.Is(err, client.ErrUnauthorized) {
		fmt.Fprintln(to, "Log in with \"ironplane login URL\", or set IRONPLANE_KEY to a valid key.")
	}
}

// flagOf returns the flag of a command for a member that an error points to, or an empty text.
func flagOf(command *cobra.Command, pointer string) string {
	id := command.Annotations["operation"]
	if id == "" {
		return ""
	}
	o := operations.All().Find(id)
	path := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(pointer, "/"), "?"), "/", ".")
	flags := bodyFlags(o)
	if strings.HasPrefix(pointer, "?") {
		flags = queryFlags(o)
	}
	for _, f := range flags {
		if f.Name == path || strings.TrimSuffix(f.Name, ".id") == path {
			return f.flag
		}
	}
	return ""
}
