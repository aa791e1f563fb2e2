package pxe_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/storage/storagetest"
)

// readiness is the response of /readyz.
type readiness struct {
	Status string
	Checks map[string]string
}

// newReadyz runs the service on a store, and returns a function that reads its /readyz. It fails the test if the status
// is not 200.
func newReadyz(t *testing.T, store string) (*testkit.RunningService, func() readiness) {
	t.Helper()
	s, _ := neighbours.Run(t, pxe.Definition, testkit.ServiceOptions{Settings: service.Settings{Store: store}})
	operations := process.NewOperations(pxe.Name)
	operations.Started()
	s.Show(operations)
	return s, func() (is readiness) {
		t.Helper()
		response := httptest.NewRecorder()
		operations.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if response.Code != http.StatusOK {
			t.Errorf("got %d from /readyz, want 200: %s", response.Code, response.Body)
		}
		testkit.Must(t, json.Unmarshal(response.Body.Bytes(), &is))
		return is
	}
}

// While the store is down the service is degraded: drivers cannot be sent, and everything else works.
func TestReadyWithoutStore(t *testing.T) {
	t.Parallel()
	url, _, away := storagetest.NewS3WithOutage(t)
	folder := filepath.Join(t.TempDir(), "store")
	for name, store := range map[string]struct {
		at   string
		fail func(fails bool)
	}{
		"S3": {url, away.Store},
		"folder": {folder, func(fails bool) {
			if fails {
				testkit.Must(t, os.Rename(folder, folder+".away"))
			} else {
				testkit.Must(t, os.Rename(folder+".away", folder))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, readyz := newReadyz(t, store.at)
			becomes := func(status string) readiness {
				t.Helper()
				return testkit.Await(t, "the service is "+status, readyz, func(is readiness) bool { return is.Status == status })
			}
			if is := becomes("ready"); is.Checks["pxe-store"] != "ok" {
				t.Errorf("got %v, want the check of the store to be ok", is.Checks)
			}
			s.Do("POST", "/pxe/driver", `{"name": "before", "driver": "ZHJpdmVy"}`).Want(200)
			store.fail(true)
			if is := becomes("degraded"); is.Checks["pxe-store"] == "ok" {
				t.Errorf("got %v, want the check of the store to fail", is.Checks)
			}
			s.Do("POST", "/pxe/shell", `{"name": "meanwhile", "body": "true"}`).Want(200)
			s.Do("GET", "/pxe/driver", nil).Want(200)
			store.fail(false)
			becomes("ready")
			s.Do("POST", "/pxe/driver", `{"name": "after", "driver": "ZHJpdmVy"}`).Want(200)
		})
	}
}

// Without a configured store there is no check.
func TestReadyWithNoStoreConfigured(t *testing.T) {
	t.Parallel()
	_, readyz := newReadyz(t, "")
	is := testkit.Await(t, "the service is ready", readyz, func(is readiness) bool { return is.Status == "ready" })
	if status, found := is.Checks["pxe-store"]; found {
		t.Errorf("got the check %q, want none", status)
	}
}
