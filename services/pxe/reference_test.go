package pxe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// What another service deletes is shown no longer, and what still uses it is named before.
func TestDeletedReferences(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	if got, want := b.used("system", "email/template", 1), fmt.Sprintf("is used by profile %d (mine)", b.profile); got != want {
		t.Errorf("got that the email template %q, want %q", got, want)
	}
	b.System.DeleteEmailTemplate(1)
	b.Network.DeleteGroup(b.group)
	testkit.Eventually(t, "the profile names no email template", func() bool {
		answer := b.Do("GET", path("/pxe/profile/%d", b.profile), nil).Want(200)
		return testkit.Decode[templates.OSReloadProfile](answer).Email.Template == nil
	})
	testkit.Eventually(t, "the file server names no IP group", func() bool {
		return testkit.Decode[pxe.FileServer](b.Do("GET", path("/pxe/file/%d", b.fileServer), nil).Want(200)).Group == nil
	})
	if uses := b.used("system", "email/template", 1); uses != "" {
		t.Errorf("got that the email template %s, want no use", uses)
	}
	edits := b.changes("system", "pxe.file")
	if last := edits[len(edits)-1]; !strings.HasPrefix(last, "pxe.file.edited") {
		t.Errorf("got %q as the last change of file servers, want an edit", last)
	}
}
