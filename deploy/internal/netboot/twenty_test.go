package netboot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Twenty machines are switched on at once: as many as their file server takes are installed, none of which waits for another, and the
// others say why they wait, and go on when there is room. Each gets what is its own, and nothing that is another's.
func TestTwentyMachines(t *testing.T) {
	needs(t) // and no other machines beside them, which would make them slow ones
	wholeRun(t)
	made := newImage(t)
	const all = 20
	for _, most := range []int{all, 5} {
		t.Run(fmt.Sprint(most, " at a time"), func(t *testing.T) {
			o := newOperator(t)
			made.bring(t, o.folder)
			o.c.Do("PATCH", fmt.Sprint("/pxe/file/", o.fileServer), map[string]any{"install_max_concurrent": most}).Want(200)
			paths, on := make([]string, all), make([]*vm, all)
			for n := range all {
				mac := fmt.Sprintf("52:54:00:77:%02x:%02x", 100+most, n)
				paths[n], on[n] = o.installSmall(made, n+1, mac, "bios", "ironplane.hold="+url+"/local/image/go"), o.newMachine(mac, "bios", 256)
			}
			for _, m := range on {
				m.on()
			}
			full := fmt.Sprintf(" is full: it serves at most %d at a time.", most)
			o.await("as many are being installed as may be, and the others have been told why they wait", 4*patience, func() bool {
				installing, waiting := 0, 0
				for _, m := range on {
					shown := unwrapped(m.console.String())
					if strings.Contains(shown, "INSTALLER: it waits") {
						installing++
					} else if strings.Contains(shown, "Ironplane: this machine waits.") && strings.Contains(shown, full) {
						waiting++
					}
				}
				if installing > most {
					t.Fatalf("got %d installs at a time, want %d at most", installing, most)
				}
				return installing == most && waiting == all-most
			})
			for n, path := range paths {
				installing := strings.Contains(on[n].console.String(), "INSTALLER:")
				i := o.until(path, "what it asked for was heard of", func(i *install.Install) bool {
					asked := slices.ContainsFunc(i.Requests, func(r install.InstallRequest) bool { return r.Kind == siteagent.EventWaiting })
					return installing == (i.Status == install.Booting) && (installing || asked)
				})
				if installing && most == all && strings.Contains(unwrapped(on[n].console.String()), "this machine waits") {
					t.Errorf("web%d: got a wait for another machine, want none", n+1)
				}
				if i.Status == install.Waiting && (i.Reason == nil || !strings.HasSuffix(*i.Reason, full)) {
					t.Errorf("web%d: got %+v, want the reason %q", n+1, i, full)
				}
			}
			o.letGo()
			for n, m := range on {
				o.await(
					"it runs from its disk",
					4*patience,
					func() bool { return strings.Contains(m.console.String(), fmt.Sprintf("SYSTEM: of web%d\r", n+1)) },
				)
				i := o.until(paths[n], "it is installed, and was booted from its disk", func(i *install.Install) bool {
					return i.Status == install.Installed && len(i.Requests) > 0 && i.Requests[0].Kind == siteagent.EventLocal
				})
				for _, r := range i.Requests {
					if r.Kind == siteagent.EventRefused && !strings.HasPrefix(r.Response, "a script that restarts it") || r.MAC != i.Host.MACs[0] ||
						r.Address != address(n+1) {
						t.Errorf("web%d: got the request %+v, want only its own", n+1, r)
					}
				}
				for _, line := range strings.Split(m.console.String(), "\n") {
					what, own, is := strings.Cut(strings.TrimSpace(line), " of web")
					if is && own != fmt.Sprint(n+1) {
						t.Errorf("web%d: got %s of web%s, want only its own", n+1, what, own)
					}
				}
			}
			o.wantMost(paths, most)
		})
	}
}

// unwrapped is what a console has shown without the ends of its lines, of which iPXE puts one at every 80th column.
func unwrapped(shown string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(shown) }

// wantMost looks in the log whether so many installs went on at some time, and never more.
func (o *operator) wantMost(paths []string, most int) {
	o.Helper()
	producttest.Drain(o.T, o.product)
	type change struct {
		ID   int64
		Type string
	}
	var changes []change
	for _, what := range []string{"booted", "installed"} {
		found := testkit.Decode[[]change](o.c.Do("GET", "/log?per_page=100&type=pxe.install."+what, nil).Want(200))
		if len(found) != len(paths) {
			o.Fatalf("got %d logged as %s, want %d", len(found), what, len(paths))
		}
		changes = append(changes, found...)
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.ID - b.ID) })
	goingOn, reached := 0, 0
	for _, c := range changes {
		if strings.HasSuffix(c.Type, "booted") {
			goingOn++
		} else {
			goingOn--
		}
		reached = max(reached, goingOn)
	}
	if reached != most {
		o.Errorf("got %d installs at a time, want %d", reached, most)
	}
}
