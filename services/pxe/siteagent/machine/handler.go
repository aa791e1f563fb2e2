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
	mostBody    = 64 << 10
	longestText = 1000
	longestFact = 200
)

// answer is the text that a machine is given, made while nothing else changes.
type answer func(r *http.Request, from netip.Addr) (string, error)

// Handler answers machines below /i/: each what is its own, by the address that it has.
func (m *Machines) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, do := range map[string]answer{
		"GET /i/boot":                      m.getScript,
		"GET /i/discover":                  m.getDiscover,
		"GET /i/{token}/boot":              m.getBoot,
		"GET /i/{token}/preseed":           m.file("preseed", func(f siteagent.Files) string { return f.Preseed }),
		"GET /i/{token}/nocloud/user-data": m.file("user-data", func(f siteagent.Files) string { return f.Preseed }),
		"GET /i/{token}/nocloud/meta-data": m.file("meta-data", func(siteagent.Files) string { return "" }),
		"GET /i/{token}/during":            m.file("during", func(f siteagent.Files) string { return f.During }),
		"GET /i/{token}/after":             m.file("after", func(f siteagent.Files) string { return f.After }),
		"POST /i/{token}/progress":         m.postProgress,
		"POST /i/{token}/done":             m.end(siteagent.Finished),
		"POST /i/{token}/failed":           m.end(siteagent.Gave),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			text, err := m.answer(w, r, do)
			if err != nil {
				problem.Write(w, r, m.log, err)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = io.WriteString(w, text) // who asked may be gone
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, m.log, nothing()) })
	return mux
}

func (m *Machines) answer(w http.ResponseWriter, r *http.Request, do answer) (string, error) {
	if r.Method == http.MethodHead { // which would cost a machine its script
		return "", problem.New(problem.MethodNotAllowed, "There is GET, and no HEAD.")
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", err
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	if err := r.ParseForm(); err != nil {
		return "", problem.New(problem.BadRequest, "The form cannot be read: %s.", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return do(r, from.Addr().Unmap())
}

// url is where a machine at an address reaches the agent.
func (m *Machines) url(at netip.Addr) string {
	if at.Is6() {
		return m.IPv6URL
	}
	return m.URL
}

// nothing is what a machine is told that asks for what is not its own, and for what is not there alike.
func nothing() error { return problem.New(problem.NotFound, "There is no such file.") }

// getScript answers a machine that has loaded iPXE by what it is to boot.
func (m *Machines) getScript(_ *http.Request, from netip.Addr) (string, error) {
	one := m.byAddress[from]
	if one == nil {
		if m.strangerAt(from) == nil {
			return "", nothing()
		}
		return m.discoverScript(), nil
	}
	url := m.url(from)
	switch one.boots() {
	case siteagent.BootInstall:
		return m.give(one, from)
	case siteagent.BootWait:
		m.tell(
			one,
			siteagent.Report{Address: from.String(), What: siteagent.Asked, Got: line("a script that asks again: "+one.Reason, longestText)},
		)
		return waitScript(url, one.Reason), nil
	default:
		m.tell(one, siteagent.Report{Address: from.String(), What: siteagent.Local, Got: "a script that boots its disk"})
		return localScript(url), nil
	}
}

// give gives a machine its boot script, once each time that it boots.
func (m *Machines) give(one *machine, from netip.Addr) (string, error) {
	at := from.String()
	if !one.Armed {
		m.tell(
			one,
			siteagent.Report{
				Address: at,
				What:    siteagent.Refused,
				Got:     "a script that restarts it: it had its boot script since it was switched on",
			},
		)
		return againScript, nil
	}
	files, err := m.files(one)
	if err != nil {
		return "", err
	}
	next := one.state
	next.Armed = false
	for _, p := range []*place{&next.place, &next.ByIPv6} {
		p.Pinned = p.Address.IsValid()
	}
	if err := m.become(one, next); err != nil {
		return "", err
	}
	m.tell(one, siteagent.Report{Address: at, What: siteagent.Booted, Got: "its boot script"})
	return files.Boot, nil
}

func (m *Machines) files(one *machine) (siteagent.Files, error) {
	var whole siteagent.Machine
	err := m.load(one.ID, machineFile, &whole)
	return whole.Files, err
}

// owner is the machine that a token is of, where it asks from its own address.
func (m *Machines) owner(r *http.Request, from netip.Addr) (*machine, error) {
	one := m.byToken[sha256.Sum256([]byte(r.PathValue("token")))] // whose digits nobody can guess one by one
	if one == nil {
		return nil, nothing()
	}
	if !one.has(from) {
		m.tell(
			one,
			siteagent.Report{
				Address: from.String(),
				What:    siteagent.Refused,
				Got:     "nothing: " + from.String() + " is not the address that it was leased",
			},
		)
		return nil, nothing()
	}
	return one, nil
}

// installing is the owner of a token whose installation goes on.
func (m *Machines) installing(r *http.Request, from netip.Addr) (*machine, error) {
	one, err := m.owner(r, from)
	if err == nil && one.Ended {
		return nil, nothing()
	}
	return one, err
}

func (m *Machines) getBoot(r *http.Request, from netip.Addr) (string, error) {
	one, err := m.installing(r, from)
	if err != nil {
		return "", err
	}
	if one.boots() != siteagent.BootInstall {
		return "", nothing()
	}
	return m.give(one, from)
}

func (m *Machines) file(name string, of func(siteagent.Files) string) answer {
	return func(r *http.Request, from netip.Addr) (string, error) {
		one, err := m.installing(r, from)
		if err != nil {
			return "", err
		}
		files, err := m.files(one)
		if err != nil {
			return "", err
		}
		text := of(files)
		m.tell(one, siteagent.Report{Address: from.String(), What: siteagent.Read, Got: fmt.Sprintf("%s, with %d bytes", name, len(text))})
		return text, nil
	}
}

const noted = "noted\n"

func (m *Machines) postProgress(r *http.Request, from netip.Addr) (string, error) {
	one, err := m.installing(r, from)
	if err != nil {
		return "", err
	}
	report := siteagent.Report{
		Address: from.String(),
		What:    siteagent.Progressed,
		Got:     "noted",
		Step:    line(r.PostForm.Get("step"), longestFact),
	}
	if text := r.PostForm.Get("progress"); text != "" {
		if report.Progress, err = strconv.Atoi(text); err != nil || report.Progress < 0 || report.Progress > 100 {
			return "", problem.Member("/progress", "out_of_range", "must be 0 to 100")
		}
	}
	return noted, m.say(one, report)
}

// end notes how an installation has ended. The token is good for nothing then but to say so again.
func (m *Machines) end(what string) answer {
	return func(r *http.Request, from netip.Addr) (string, error) {
		one, err := m.owner(r, from)
		if err != nil {
			return "", err
		}
		if !one.Ended {
			if err := m.flush(one); err != nil {
				return "", err
			}
			next := one.state
			next.Ended, next.Owed = true, &siteagent.Report{
				ID:       one.ID,
				Revision: one.Revision,
				MAC:      one.MACs[0],
				Address:  from.String(),
				What:     what,
				Got:      "noted",
			}
			if what == siteagent.Gave {
				next.Owed.Error = line(r.PostForm.Get("error"), longestText)
			}
			if err := m.become(one, next); err != nil {
				return "", err
			}
		}
		if one.Owed != nil {
			if err := m.pay(one); err != nil {
				return "", err
			}
		}
		return noted, nil
	}
}

// getDiscover notes what a machine is that nobody named, and sends it to its disk.
func (m *Machines) getDiscover(r *http.Request, from netip.Addr) (string, error) {
	one := m.strangerAt(from)
	if one == nil {
		return "", nothing()
	}
	is := map[string]string{}
	for _, fact := range facts {
		if text := line(r.Form.Get(fact.name), longestFact); text != "" {
			is[fact.name] = text
		}
	}
	m.tell(&one.machine, siteagent.Report{Address: from.String(), What: siteagent.Discovered, Got: "a script that boots its disk", Facts: is})
	return localScript(m.URL), nil
}
