package machine

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	maxBodySize   = 64 << 10
	maxTextLength = 1000
	maxFactLength = 200
)

// textFunc returns the text for a machine at an address. The lock is held meanwhile.
type textFunc func(r *http.Request, from netip.Addr) (string, error)

// Handler serves the paths below /i/. A machine is identified by its address, and each machine gets only its own files.
func (m *Machines) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, do := range map[string]textFunc{
		"GET /i/boot":                      func(_ *http.Request, from netip.Addr) (string, error) { return m.getScript(iPXE, from) },
		"GET /i/discover":                  m.getDiscover,
		"GET /i/{token}/boot":              m.getBoot,
		"GET /i/{token}/preseed":           m.serveFile("preseed", func(f siteagent.Files) string { return f.Preseed }),
		"GET /i/{token}/nocloud/user-data": m.serveFile("user-data", func(f siteagent.Files) string { return f.Preseed }),
		"GET /i/{token}/nocloud/meta-data": m.serveFile("meta-data", func(siteagent.Files) string { return "" }),
		"GET /i/{token}/during":            m.serveFile("during", func(f siteagent.Files) string { return f.During }),
		"GET /i/{token}/after":             m.serveFile("after", func(f siteagent.Files) string { return f.After }),
		"POST /i/{token}/progress":         m.postProgress,
		"POST /i/{token}/report":           m.postReport,
		"POST /i/{token}/done":             m.endInstall(siteagent.EventDone),
		"POST /i/{token}/failed":           m.endInstall(siteagent.EventFailed),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			text, err := m.serve(w, r, do)
			if err != nil {
				problem.Write(w, r, m.log, err)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = io.WriteString(w, text) // the machine may be gone
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, m.log, errNotFound()) })
	return mux
}

// serve parses a machine's request, and returns the text for it.
func (m *Machines) serve(w http.ResponseWriter, r *http.Request, do textFunc) (string, error) {
	if r.Method == http.MethodHead { // it would use up the machine's script
		return "", problem.New(problem.MethodNotAllowed, "HEAD is not supported. Use GET.")
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", err
	}
	if r.Method == http.MethodPost { // the body is read only for the token's machine, and without the lock
		if err := m.checkToken(r, from.Addr().Unmap()); err != nil {
			w.Header().Set("Connection", "close") // so that the server does not wait for the rest of the body
			return "", err
		}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodySize)
	if err := r.ParseForm(); err != nil {
		return "", problem.New(problem.BadRequest, "The form cannot be read: %s.", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return do(r, from.Addr().Unmap())
}

// checkToken returns an error if the request's token is not that of a machine at this address.
func (m *Machines) checkToken(r *http.Request, from netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.findByToken(r, from)
	return err
}

// urlFor returns the agent's base URL for a machine's address.
func (m *Machines) urlFor(address netip.Addr) string {
	if address.Is6() {
		return m.IPv6URL
	}
	return m.URL
}

// errNotFound returns the same error for a missing file and for one of another machine.
func errNotFound() error { return problem.New(problem.NotFound, "There is no such file.") }

// getScript returns the script for a machine that has loaded a bootloader. The lock is held.
func (m *Machines) getScript(b bootloader, from netip.Addr) (string, error) {
	mach := m.byAddress[from]
	if mach == nil {
		if m.findUnknown(from) == nil {
			return "", errNotFound()
		}
		return m.discoverScript(), nil
	}
	url := m.urlFor(from)
	switch mach.bootAction() {
	case siteagent.BootInstall:
		if mach.Armed && b.isSigned != mach.SecureBoot { // it asked for a bootloader before its install was created
			return m.refuseBootScript(mach, from, "it has loaded "+b.name+", and its boot script is for another bootloader", b.restart), nil
		}
		return m.serveBootScript(b.restart, mach, from)
	case siteagent.BootWait:
		m.tryReport(
			mach,
			siteagent.Report{
				Address:  from.String(),
				Event:    siteagent.EventWaiting,
				Response: cleanLine("a script that asks again: "+mach.waitReason(), maxTextLength),
			},
		)
		return b.wait(url, mach.waitReason()), nil
	default:
		m.tryReport(mach, siteagent.Report{Address: from.String(), Event: siteagent.EventLocal, Response: "a script that boots its disk"})
		return b.local(url), nil
	}
}

// refuseBootScript reports why a machine does not get its boot script now, and returns the script that restarts it.
func (m *Machines) refuseBootScript(mach *machine, from netip.Addr, reason, restart string) string {
	m.tryReport(
		mach,
		siteagent.Report{Address: from.String(), Event: siteagent.EventRefused, Response: "a script that restarts it: " + reason},
	)
	return restart
}

// serveBootScript returns a machine's boot script once per boot, and after that the script that restarts it.
func (m *Machines) serveBootScript(restart string, mach *machine, from netip.Addr) (string, error) {
	if !mach.Armed {
		return m.refuseBootScript(mach, from, "it already got its boot script in this boot", restart), nil
	}
	files, err := m.readFiles(mach)
	if err != nil {
		return "", err
	}
	next := mach.state
	next.Armed = false
	for _, p := range []*location{&next.location, &next.ByIPv6} {
		p.Pinned = p.Address.IsValid()
	}
	if err := m.setState(mach, next); err != nil {
		return "", err
	}
	m.tryReport(mach, siteagent.Report{Address: from.String(), Event: siteagent.EventBooted, Response: "its boot script"})
	return files.Boot, nil
}

// readFiles reads a machine's files from the disk.
func (m *Machines) readFiles(mach *machine) (siteagent.Files, error) {
	var stored siteagent.Machine
	err := m.load(mach.ID, machineFile, &stored)
	return stored.Files, err
}

// findByToken returns a token's machine if the request comes from that machine's address.
func (m *Machines) findByToken(r *http.Request, from netip.Addr) (*machine, error) {
	mach := m.byToken[sha256.Sum256([]byte(r.PathValue("token")))] // hashed, so that the time of the look-up says nothing about the token
	if mach == nil {
		return nil, errNotFound()
	}
	if !mach.hasAddress(from) {
		m.tryReport(
			mach,
			siteagent.Report{
				Address:  from.String(),
				Event:    siteagent.EventRefused,
				Response: "nothing: " + from.String() + " is not its leased address",
			},
		)
		return nil, errNotFound()
	}
	return mach, nil
}

// findInstalling returns a token's machine if it is still being installed.
func (m *Machines) findInstalling(r *http.Request, from netip.Addr) (*machine, error) {
	mach, err := m.findByToken(r, from)
	if err == nil && mach.Ended {
		return nil, errNotFound()
	}
	return mach, err
}

// getBoot returns the boot script for a token.
func (m *Machines) getBoot(r *http.Request, from netip.Addr) (string, error) {
	mach, err := m.findInstalling(r, from)
	if err != nil {
		return "", err
	}
	if mach.bootAction() != siteagent.BootInstall {
		return "", errNotFound()
	}
	return m.serveBootScript(mach.bootloader().restart, mach, from)
}

// serveFile returns a function that responds with one of a machine's files.
func (m *Machines) serveFile(name string, field func(siteagent.Files) string) textFunc {
	return func(r *http.Request, from netip.Addr) (string, error) {
		mach, err := m.findInstalling(r, from)
		if err != nil {
			return "", err
		}
		files, err := m.readFiles(mach)
		if err != nil {
			return "", err
		}
		text := field(files)
		m.tryReport(
			mach,
			siteagent.Report{Address: from.String(), Event: siteagent.EventRead, Response: fmt.Sprintf("%s, with %d bytes", name, len(text))},
		)
		return text, nil
	}
}

const noted = "noted\n"

// postProgress reports an installer's progress.
func (m *Machines) postProgress(r *http.Request, from netip.Addr) (string, error) {
	mach, err := m.findInstalling(r, from)
	if err != nil {
		return "", err
	}
	report := siteagent.Report{
		Address:  from.String(),
		Event:    siteagent.EventProgress,
		Response: "noted",
		Step:     cleanLine(r.PostForm.Get("step"), maxFactLength),
	}
	if text := r.PostForm.Get("progress"); text != "" {
		if report.Progress, err = strconv.Atoi(text); err != nil || report.Progress < 0 || report.Progress > 100 {
			return "", problem.Member("/progress", "out_of_range", "must be 0 to 100")
		}
	}
	return noted, m.report(mach, report)
}

// endInstall records how an installation ended. From then on the token may only report the end again.
func (m *Machines) endInstall(event string) textFunc {
	return func(r *http.Request, from netip.Addr) (string, error) {
		mach, err := m.findByToken(r, from)
		if err != nil {
			return "", err
		}
		if !mach.Ended {
			if err := m.flush(mach); err != nil {
				return "", err
			}
			next := mach.state
			next.Ended, next.Undelivered = true, &siteagent.Report{
				ID:       mach.ID,
				Revision: mach.Revision,
				MAC:      mach.MACs[0],
				Address:  from.String(),
				Event:    event,
				Response: "noted",
			}
			if event == siteagent.EventFailed {
				next.Undelivered.Error = cleanLine(r.PostForm.Get("error"), maxTextLength)
			}
			if err := m.setState(mach, next); err != nil {
				return "", err
			}
		}
		if mach.Undelivered != nil {
			if err := m.sendUndelivered(mach); err != nil {
				return "", err
			}
		}
		return noted, nil
	}
}

// getDiscover reports an unknown machine's facts, and tells it to boot its disk.
func (m *Machines) getDiscover(r *http.Request, from netip.Addr) (string, error) {
	unknown := m.findUnknown(from)
	if unknown == nil {
		return "", errNotFound()
	}
	values := map[string]string{}
	for _, fact := range facts {
		if text := cleanLine(r.Form.Get(fact.name), maxFactLength); text != "" {
			values[fact.name] = text
		}
	}
	m.tryReport(
		&unknown.machine,
		siteagent.Report{Address: from.String(), Event: siteagent.EventDiscovered, Response: "a script that boots its disk", Facts: values},
	)
	return localScript(m.URL), nil
}
