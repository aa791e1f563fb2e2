// Package browser tries in a real browser what is for one.
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
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
)

// password is what people have until they choose another one.
const password = "a long walk in the rain"

// site is the product where a browser finds it.
type site struct {
	url   string
	admin *testkit.Client
	mails *mailbox.Server
}

// newSite runs the product behind an address that a browser takes for a safe one, and that is known before it runs.
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
		APIURL: s.url, PasskeyDomain: "localhost", PasskeyOrigins: s.url})
	gateway = p.Gateway
	served.Start()
	s.admin = testkit.ClientAt(t, served.URL).WithKey(c.Key)
	return s
}

// most is how long a browser may take for all of a test: on a busy machine it starts for half a minute.
const most = 10 * time.Minute

// window is a browser's.
type window struct {
	t *testing.T
	context.Context

	mu    sync.Mutex
	asked []*network.Request
}

// open starts a browser of the test's own.
func open(t *testing.T) *window {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium, in which this is tried: apt-get install chromium")
	}
	folder, err := os.MkdirTemp("", "ironplane-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // where processes of the browser may write still
		testkit.Eventually(t, "the browser's folder is deleted", func() bool { return os.RemoveAll(folder) == nil })
	})
	ctx, cancel := context.WithTimeout(t.Context(), most)
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
			chromedp.WSURLReadTimeout(most),
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

// call has the browser do what its protocol has a command for.
func call[P, R any](w *window, command cdp.Command[P, R], parameters P) R {
	w.t.Helper()
	return get(w, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, parameters) })
}

// run is what a script comes to, of which promises are waited for. An error of the script's is answered as its text.
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
	of := get(
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
	return of.Value, of.Failed
}

// requests are what the browser asked for.
func (w *window) requests() []*network.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*network.Request(nil), w.asked...)
}
