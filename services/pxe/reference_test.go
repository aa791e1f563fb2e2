package pxe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// An item that another service deletes is cleared from the items that refer to it. Before, its owner learns what uses
// it.
func TestDeletedReferences(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	if got, want := b.used("system", "email/template", 1), fmt.Sprintf("is used by profile %d (mine)", b.profile); got != want {
		t.Errorf("got that the email template %q, want %q", got, want)
	}
	b.System.DeleteEmailTemplate(1)
	b.Network.DeleteGroup(b.group)
	testkit.Eventually(t, "the profile names no email template", func() bool {
		response := b.Do("GET", path("/pxe/profile/%d", b.profile), nil).Want(200)
		return testkit.Decode[templates.OSReloadProfile](response).Email.Template == nil
	})
	testkit.Eventually(t, "the file server names no IP group", func() bool {
		return testkit.Decode[pxe.FileServer](b.Do("GET", path("/pxe/file/%d", b.fileServer), nil).Want(200)).Group == nil
	})
	if usage := b.used("system", "email/template", 1); usage != "" {
		t.Errorf("got that the email template %s, want no use", usage)
	}
	changes := func() []string { return b.changes("system", "pxe.file") }
	testkit.Await(t, "the last change of file servers is an edit", changes, func(all []string) bool {
		return len(all) > 0 && strings.HasPrefix(all[len(all)-1], "pxe.file.edited")
	})
}
