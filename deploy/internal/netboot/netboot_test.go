package netboot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const tokens = "0123456789abcdefghijklmnop"

// A machine with an empty disk is switched on, is installed from the agent alone, and comes back from its disk.
func TestAgentInstalls(t *testing.T) {
	t.Parallel()
	needs(t)
	made := newImage(t)
	for i, firmware := range []string{"bios", "uefi", "http"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			made.bring(t, s.folder)
			mac := fmt.Sprintf("52:54:00:77:00:%02x", 16+i)
			one := siteagent.Machine{ID: 7, Revision: 1, MACs: []string{mac}, Hostname: "web1.example.com", IPv4: &siteagent.Address{Prefix: "10.77.0.10/24", Gateway: "10.77.0.1"},
				Boot: siteagent.BootInstall, Token: tokens, Files: siteagent.Files{Boot: made.bootScript(url, tokens, ""), Preseed: "of web1"}}
			if err := s.client.PutMachine(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			m := s.switchOn(mac, firmware)
			m.shows("INSTALLER: preseed: of web1", 1)
			m.shows("INSTALLER: it restarts", 1)
			m.shows("SYSTEM: it runs from its disk", 1)
			s.wantStory(7, siteagent.Leased, siteagent.Booted, siteagent.Read, siteagent.Progressed, siteagent.Finished, siteagent.Leased, siteagent.Local)
		})
	}
}

// wantStory looks at what a machine has done, in its order, whatever else it did in between.
func (s *site) wantStory(id int64, want ...string) {
	s.Helper()
	var story []string
	for _, r := range s.reports() {
		if r.ID == id {
			story = append(story, r.What)
		}
	}
	rest := story
	for _, what := range want {
		i := slices.Index(rest, what)
		if i < 0 {
			s.Errorf("the machine's story is %v, want %v", story, want)
			return
		}
		rest = rest[i+1:]
	}
}
