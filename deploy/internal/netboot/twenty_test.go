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

// TestTwentyMachines switches twenty machines on at once. As many as the file server has slots for are installed,
// and the others report why they wait and go on when a slot is free. Each machine gets its own files only.
func TestTwentyMachines(t *testing.T) {
	requireTools(t) // not in parallel, because other machines would slow these down
	requireFull(t)
	image := newImage(t)
	const all = 20
	for _, maxInstalls := range []int{all, 5} {
		t.Run(fmt.Sprint(maxInstalls, " at a time"), func(t *testing.T) {
			o := newOperator(t)
			image.addFiles(t, o.folder)
			o.c.Do("PATCH", fmt.Sprint("/pxe/file/", o.fileServer), map[string]any{"install_max_concurrent": maxInstalls}).Want(200)
			paths, on := make([]string, all), make([]*vm, all)
			for n := range all {
				mac := fmt.Sprintf("52:54:00:77:%02x:%02x", 100+maxInstalls, n)
				paths[n], on[n] = o.installSmall(image, n+1, mac, "bios", "ironplane.hold="+url+"/local/image/go"), o.newMachine(mac, "bios", 256)
			}
			for _, m := range on {
				m.on()
			}
			limitText := fmt.Sprintf(" is full: it serves at most %d at a time.", maxInstalls)
			o.await("all slots are used, and the other machines show why they wait", 4*waitTimeout, func() bool {
				installing, waiting := 0, 0
				for _, m := range on {
					shown := unwrapped(m.console.String())
					if strings.Contains(shown, "INSTALLER: it waits") {
						installing++
					} else if strings.Contains(shown, "Ironplane: this machine waits.") && strings.Contains(shown, limitText) {
						waiting++
					}
				}
				if installing > maxInstalls {
					t.Fatalf("got %d installs at a time, want %d at most", installing, maxInstalls)
				}
				return installing == maxInstalls && waiting == all-maxInstalls
			})
			for n, path := range paths {
				installing := strings.Contains(on[n].console.String(), "INSTALLER:")
				i := o.awaitInstall(path, "the control plane has the machine's requests", func(i *install.Install) bool {
					asked := slices.ContainsFunc(i.Requests, func(r install.InstallRequest) bool { return r.Kind == siteagent.EventWaiting })
					return installing == (i.Status == install.Booting) && (installing || asked)
				})
				if installing && maxInstalls == all && strings.Contains(unwrapped(on[n].console.String()), "this machine waits") {
					t.Errorf("web%d: got a wait for another machine, want none", n+1)
				}
				if i.Status == install.Waiting && (i.Reason == nil || !strings.HasSuffix(*i.Reason, limitText)) {
					t.Errorf("web%d: got %+v, want the reason %q", n+1, i, limitText)
				}
			}
			o.releaseInstallers()
			for n, m := range on {
				o.await(
					"the machine runs from its disk",
					4*waitTimeout,
					func() bool { return strings.Contains(m.console.String(), fmt.Sprintf("SYSTEM: of web%d\r", n+1)) },
				)
				i := o.awaitInstall(paths[n], "the machine is installed and has booted from its disk", func(i *install.Install) bool {
					return i.Status == install.Installed && len(i.Requests) > 0 && i.Requests[0].Kind == siteagent.EventLocal
				})
				for _, r := range i.Requests {
					if r.Kind == siteagent.EventRefused && !strings.HasPrefix(r.Response, "a script that restarts it") || r.MAC != i.Host.MACs[0] ||
						r.Address != address(n+1) {
						t.Errorf("web%d: got the request %+v, want only its own", n+1, r)
					}
				}
				for _, line := range strings.Split(m.console.String(), "\n") {
					label, own, is := strings.Cut(strings.TrimSpace(line), " of web")
					if is && own != fmt.Sprint(n+1) {
						t.Errorf("web%d: got %s of web%s, want only its own", n+1, label, own)
					}
				}
			}
			o.wantMaxInstalls(paths, maxInstalls)
		})
	}
}

// unwrapped returns the output of a console without line ends, because iPXE breaks lines at 80 columns.
func unwrapped(shown string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(shown) }

// wantMaxInstalls tests with the log that at some time maxInstalls installs were running, and never more.
func (o *operator) wantMaxInstalls(paths []string, maxInstalls int) {
	o.Helper()
	producttest.AwaitLog(o.T, o.product)
	type change struct {
		ID   int64
		Type string
	}
	var changes []change
	for _, label := range []string{"booted", "installed"} {
		found := testkit.Decode[[]change](o.c.Do("GET", "/log?per_page=100&type=pxe.install."+label, nil).Want(200))
		if len(found) != len(paths) {
			o.Fatalf("got %d logged as %s, want %d", len(found), label, len(paths))
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
	if reached != maxInstalls {
		o.Errorf("got %d installs at a time, want %d", reached, maxInstalls)
	}
}
