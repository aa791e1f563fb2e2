// Package browser tests the console, the password page and passkeys in a real browser.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/identity"
)

// password is the password of new accounts.
const password = "a long walk in the rain"

// site is the product at an address that a browser can reach.
type site struct {
	url      string
	admin    *testkit.Client
	mails    *mailbox.Server
	identity *pg.DB
}

// newSite starts the product behind an address on localhost, which browsers treat as secure. answer handles each
// request, with the gateway as its last argument.
func newSite(t *testing.T, answer func(http.ResponseWriter, *http.Request, http.Handler)) *site {
	t.Helper()
	var gateway http.Handler
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, gateway) }))
	t.Cleanup(served.Close)
	s := &site{
		url:   strings.Replace("http://"+served.Listener.Addr().String(), "127.0.0.1", "localhost", 1),
		mails: mailbox.Start(t, mailbox.Options{}),
	}
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{SMTP: "smtp+plain://" + s.mails.Addr, MailFrom: "noreply@example.com",
		APIURL: s.url, AdminURL: s.url + "/-/console", AllowedNetworks: "127.0.0.1", PasskeyDomain: "localhost", PasskeyOrigins: s.url})
	gateway, s.identity = p.Gateway, p.Databases[identity.Name]
	served.Start()
	s.admin = testkit.ClientAt(t, served.URL).WithKey(c.Key)
	return s
}

// browserTimeout bounds the browser's part of a test. On a busy machine the browser needs half a minute to start.
const browserTimeout = 10 * time.Minute

// window is a tab of a browser, with the requests that it has sent.
type window struct {
	t *testing.T
	context.Context

	mu    sync.Mutex
	asked []*network.Request
}

// open starts a browser for the test, and skips the test without Chromium.
func open(t *testing.T) *window {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("Chromium is not installed; Debian's package chromium has it")
	}
	folder, err := os.MkdirTemp("", "ironplane-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // processes of the browser may still write there
		testkit.Eventually(t, "the browser's folder is deleted", func() bool { return os.RemoveAll(folder) == nil })
	})
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(
		ctx,
		append(
			chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path),
			chromedp.UserDataDir(folder),
			chromedp.NoSandbox,
			chromedp.DisableGPU,
			chromedp.Flag("disable-quic", true),
			chromedp.Flag("disable-component-update", true),
			chromedp.WSURLReadTimeout(browserTimeout),
		)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	w := &window{t: t, Context: ctx}
	call(w, network.Enable, network.EnableParams{})
	if err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok {
			w.mu.Lock()
			w.asked = append(w.asked, e.Request)
			w.mu.Unlock()
		}
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	get(w, chromedp.Steps(steps...))
}

func get[T any](w *window, action chromedp.Action[T]) T {
	w.t.Helper()
	value, err := chromedp.Run(w, action)
	if err != nil {
		w.t.Fatal(err)
	}
	return value
}

// call sends a command of the DevTools protocol and returns its result.
func call[P, R any](w *window, command cdp.Command[P, R], parameters P) R {
	w.t.Helper()
	return get(w, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, parameters) })
}

// run evaluates a script in the page, waits for its promise, and returns the value. failed is the text of the error
// that the script threw.
func run[T any](w *window, script string, arguments ...any) (value T, failed string) {
	w.t.Helper()
	texts := make([]string, len(arguments))
	for i, a := range arguments {
		text, err := json.Marshal(a)
		if err != nil {
			w.t.Fatal(err)
		}
		texts[i] = string(text)
	}
	type outcome struct {
		Value  T
		Failed string
	}
	result := get(
		w,
		chromedp.Evaluate[outcome](
			fmt.Sprintf(
				`(async () => { try { return {Value: await (%s)(%s)}; } catch (e) { return {Failed: String(e)}; } })()`,
				script,
				strings.Join(texts, ", "),
			),
			chromedp.EvalAwaitPromise,
		),
	)
	return result.Value, result.Failed
}

// requests returns the requests that the browser has sent so far.
func (w *window) requests() []*network.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*network.Request(nil), w.asked...)
}
