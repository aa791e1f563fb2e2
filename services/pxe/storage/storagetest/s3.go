// Package storagetest gives tests a server that speaks S3.
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

// Credentials are as anybody's S3 client finds them. TestMain calls it.
func Credentials() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// S3 is a bucket: where a store finds it, and the names of what is in it.
func S3(t testing.TB) (url string, blobs func() []string) {
	t.Helper()
	url, blobs, _ = Outage(t)
	return url, blobs
}

// Outage is S3 with a switch: while away is true the bucket's server breaks off each connection.
func Outage(t testing.TB) (url string, blobs func() []string, away *atomic.Bool) {
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
