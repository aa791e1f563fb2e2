// Package storagetest gives tests a server that implements S3.
package storagetest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// SetCredentials sets the environment variables from which S3 clients read their credentials. Call it in TestMain.
func SetCredentials() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// NewS3 starts a server with a bucket. It returns the URL for a store, and a function that lists the names of the blobs.
func NewS3(t testing.TB) (url string, blobs func() []string) {
	t.Helper()
	url, blobs, _ = NewS3WithOutage(t)
	return url, blobs
}

// NewS3WithOutage is NewS3 with a switch: while away is true, the server breaks every connection.
func NewS3WithOutage(t testing.TB) (url string, blobs func() []string, away *atomic.Bool) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("files"); err != nil {
		t.Fatal(err)
	}
	away = &atomic.Bool{}
	next := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return "s3://files?region=eu&use_path_style=true&endpoint=" + server.URL, func() (names []string) {
		all, err := backend.ListBucket("files", nil, gofakes3.ListBucketPage{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all.Contents {
			names = append(names, o.Key)
		}
		return names
	}, away
}
