package agent_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// An encoded slash separates no elements of a path, for machines and for the control plane.
func TestEncodedPaths(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("boot/grub.cfg", "menu")
	for path, want := range map[string]int{
		"/boot/grub.cfg":           200,
		"/bo%6ft/grub.cfg":         200,
		"/boot%2fgrub.cfg":         404,
		"/boot%2Fgrub.cfg":         404,
		"/boot/..%2fboot/grub.cfg": 404,
		"/..%2f..%2fetc%2fpasswd":  404,
		"/boot%5cgrub.cfg":         404,
		"/boot/grub.cfg%00":        404,
		"/i%2fboot":                404,
	} {
		response := httptest.NewRecorder()
		r.machines.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if response.Code != want {
			t.Errorf("a machine, %s: got %d %s, want %d", path, response.Code, response.Body, want)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.server.URL+"/v1/file"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		answer, err := r.client.HTTP.Transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("the control plane, /v1/file%s: got %d, want %d", path, answer.StatusCode, want)
		}
	}
}
