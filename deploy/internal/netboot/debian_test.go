package netboot

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	mirror = "http://deb.debian.org/debian/"
	// outside is who machines at a site take for everybody.
	outside = "10.77.0.2"
	// netboot is where a mirror has what boots from the network.
	netboot = "/debian/dists/trixie/main/installer-amd64/current/images/netboot/"
)

// Debian's own installer is booted by the profile that comes with Ironplane, sets its network up without asking, is given its preseed, and
// does what that has it do first, which is to report. Where the mirror has all that it loads after that, the machine is installed, restarts
// from its disk, and lets its owner in.
func TestDebianInstaller(t *testing.T) {
	t.Parallel()
	needs(t, dhcpServer, debianKeys, sshClient)
	wholeRun(t)
	installer := filepath.Join(debianInstaller(t), "usr/lib/debian-installer/images/13/amd64/text")
	for firmware, mac := range map[string]string{"bios": "52:54:00:77:00:60", "uefi": "52:54:00:77:00:61"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			missing := o.reachMirror(installer)
			key := o.newKey()
			path := o.install(
				map[string]any{
					"ssh_keys": key.public,
					"password": password,
					"host": map[string]any{"macs": []string{mac}, "hostname": "web1.example.com", "entity": o.entity(1),
						"disk": "/dev/vda", "firmware": firmware, "nameservers": outside},
				},
				o.profile("Debian 13"),
				nil,
			)
			m := o.newMachine(mac, firmware, 1024)
			m.arguments = append(m.arguments, "-device", "VGA") // where the installer shows its questions
			m.on()
			goesOn := func(i *install.Install) {
				if i.Status == install.Failed {
					t.Fatalf("got a failed install, want it to go on: %s\n%s", *i.Error, m.console)
				}
			}
			i := o.until(path, "the installer reports", func(i *install.Install) bool {
				goesOn(i)
				return i.Status == install.Installing
			})
			if i.Step == nil || *i.Step != "partitions" || i.Progress != 10 {
				t.Errorf("got %+v, want the step partitions at 10 %%", i)
			}
			if !slices.ContainsFunc(i.Requests, func(r install.InstallRequest) bool {
				return r.Kind == siteagent.EventRead && r.Address == address(1) && strings.HasPrefix(r.Response, "preseed")
			}) {
				t.Errorf("got the requests %+v, want one for the preseed", i.Requests)
			}

			o.await("it is installed", 8*patience, func() bool {
				i := testkit.Decode[install.Install](o.c.Do("GET", path, nil).Want(200))
				goesOn(&i)
				if file := missing.Load(); file != nil {
					t.Skipf("the installer cannot go on, for the mirror lacks %s", *file)
				}
				return i.Status == install.Installed
			})
			if got := key.run(
				"hostname -f; cat /etc/debian_version; findmnt -n -o SOURCE /",
			); !strings.HasPrefix(got, "web1.example.com\n13.") ||
				!strings.Contains(got, "/dev/vda") {
				t.Errorf("got %s, want Debian 13 of web1.example.com on /dev/vda", got)
			}
		})
	}
}

// reachMirror has machines reach Debian's mirror by its name, and there the installer's kernel and initrd, which not all mirrors have
// beside
// the packages. It answers the package that they asked for last, and that the mirror lacks.
func (o *operator) reachMirror(installer string) *atomic.Pointer[string] {
	o.Helper()
	shell(o, "/", fmt.Sprintf("ip -n %s addr add %s/24 dev br0", o.space, outside))
	o.runIn(
		o.space,
		"dnsmasq",
		"--keep-in-foreground",
		"--conf-file=/dev/null",
		"--pid-file=",
		"--no-hosts",
		"--no-resolv",
		"--bind-interfaces",
		"--listen-address="+outside,
		"--address=/#/"+outside,
	)
	listening := make(chan net.Listener)
	go func() { // on a thread that has the site's network, and ends
		runtime.LockOSThread()
		space, err := os.Open("/run/netns/" + o.space)
		if err == nil {
			defer space.Close()
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
		}
		var listener net.Listener
		if err == nil {
			listener, err = net.Listen("tcp", outside+":80")
		}
		if err != nil {
			o.Error(err)
		}
		listening <- listener
	}()
	listener := <-listening
	if listener == nil {
		o.FailNow()
	}
	var missing atomic.Pointer[string]
	mux := http.NewServeMux()
	mux.Handle(netboot, http.StripPrefix(netboot, http.FileServer(http.Dir(installer))))
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
	}, ModifyResponse: func(r *http.Response) error {
		if asked := r.Request.URL.Path; r.StatusCode == http.StatusNotFound && strings.HasSuffix(asked, "deb") {
			missing.Store(&asked)
		}
		return nil
	}})
	served := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = served.Serve(listener)
	}()
	o.Cleanup(func() {
		_ = served.Close()
		<-done
	})
	return &missing
}
