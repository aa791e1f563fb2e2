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
	// outside is the address that every name outside the site resolves to.
	outside = "10.77.0.2"
	// netboot is the path of the installer of a release on a mirror.
	netboot = "/debian/dists/%s/main/installer-amd64/current/images/netboot/"
)

// debianRelease is a release that a profile installs.
type debianRelease struct {
	profile, suite, number string

	unpacked func(testing.TB) string // returns the folder with the installer
}

// debianReleases are the releases that profiles install.
var debianReleases = []debianRelease{
	{"Debian 12", "bookworm", "12", debianInstaller("12", "bookworm")},
	{"Debian 13", "trixie", "13", debianInstaller("13", "trixie")},
}

// TestDebianInstaller boots Debian's own installers with the profiles that come with Ironplane. The installer configures its
// network without questions, reads its preseed, and reports. If the mirror has all packages, it installs the machine, which
// restarts from its disk and accepts a sign-in by SSH.
func TestDebianInstaller(t *testing.T) {
	t.Parallel()
	requireTools(t, dhcpServer, debianKeys, sshClient)
	requireFull(t)
	for n, release := range debianReleases {
		for f, firmware := range []string{"bios", "uefi"} {
			t.Run(release.profile+" "+firmware, func(t *testing.T) {
				t.Parallel()
				release.install(t, firmware, fmt.Sprintf("52:54:00:77:00:6%d", 2*n+f))
			})
		}
	}
}

// install installs a machine by the release's installer.
func (r *debianRelease) install(t *testing.T, firmware, mac string) {
	t.Helper()
	installer := filepath.Join(r.unpacked(t), "usr/lib/debian-installer/images", r.number, "amd64/text")
	o := newOperator(t)
	missing := o.reachMirror(installer, fmt.Sprintf(netboot, r.suite))
	key := o.newKey()
	path := o.install(
		map[string]any{
			"ssh_keys": key.public,
			"password": password,
			"host": map[string]any{"macs": []string{mac}, "hostname": "web1.example.com", "entity": o.entity(1),
				"disk": "/dev/vda", "firmware": firmware, "nameservers": outside},
		},
		o.profile(r.profile),
		nil,
	)
	m := o.newMachine(mac, firmware, 1024)
	m.arguments = append(m.arguments, "-device", "VGA") // the installer shows its questions there
	m.on()
	wantNotFailed := func(i *install.Install) {
		if i.Status == install.Failed {
			t.Fatalf("got a failed install, want it to go on: %s\n%s", *i.Error, m.console)
		}
	}
	i := o.awaitInstall(path, "the installer reports", func(i *install.Install) bool {
		wantNotFailed(i)
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

	o.await("the machine is installed", 8*waitTimeout, func() bool {
		i := testkit.Decode[install.Install](o.c.Do("GET", path, nil).Want(200))
		wantNotFailed(&i)
		if file := missing.Load(); file != nil {
			t.Skipf("the installer cannot finish: the configured mirror of Debian lacks %s", *file)
		}
		return i.Status == install.Installed
	})
	if got := key.run(
		"hostname -f; cat /etc/debian_version; findmnt -n -o SOURCE /",
	); !strings.HasPrefix(got, "web1.example.com\n"+r.number+".") ||
		!strings.Contains(got, "/dev/vda") {
		t.Errorf("got %s, want %s of web1.example.com on /dev/vda", got, r.profile)
	}
}

// reachMirror connects machines to Debian's mirror by its name, and serves them the installer's kernel and initrd below a path,
// which not every mirror has. It returns the last package that a machine requested and the mirror lacks.
func (o *operator) reachMirror(installer, path string) *atomic.Pointer[string] {
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
	go func() { // on a thread in the site's network namespace, which ends with the goroutine
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
	mux.Handle(path, http.StripPrefix(path, http.FileServer(http.Dir(installer))))
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
	}, ModifyResponse: func(r *http.Response) error {
		if path := r.Request.URL.Path; r.StatusCode == http.StatusNotFound && strings.HasSuffix(path, "deb") {
			missing.Store(&path)
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
