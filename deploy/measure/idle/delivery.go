package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
)

const (
	callTimeout  = 10 * time.Second
	waitTimeout  = 2 * time.Minute
	lookInterval = 2 * time.Millisecond
	// changePause lets the installation rest before each change.
	changePause = 700 * time.Millisecond
)

// measureDelivery prints how long changes take until others know of them.
func (i *installation) measureDelivery(ctx context.Context, rounds int) error {
	arrived := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- string(body)
	}))
	defer server.Close()
	if err := i.call(ctx, "POST", "/webhook", map[string]any{"url": server.URL, "types": []string{"*"}}, nil); err != nil {
		return err
	}
	for _, kind := range []struct {
		what   string
		follow func(context.Context, int) (time.Duration, error)
	}{
		{"in the log", i.untilLogged},
		{"at a webhook", func(ctx context.Context, n int) (time.Duration, error) { return i.untilArrived(ctx, n, arrived) }},
		{"a setting counts at the gateway", i.untilCounts},
	} {
		var took []time.Duration
		for n := range rounds {
			if err := rest(ctx, changePause+time.Duration(n)*13*time.Millisecond); err != nil {
				return err
			}
			d, err := kind.follow(ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.what, err)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		fmt.Printf("from the answer until it is %-32s median %5d ms, 90 %% within %5d ms, all within %5d ms\n", kind.what,
			took[len(took)/2].Milliseconds(), took[len(took)*9/10].Milliseconds(), took[len(took)-1].Milliseconds())
	}
	return nil
}

func (i *installation) create(ctx context.Context, name string) error {
	return i.call(ctx, "POST", "/port-speed", map[string]any{"name": name, "speed": 1000}, nil)
}

func (i *installation) untilLogged(ctx context.Context, n int) (time.Duration, error) {
	name := fmt.Sprintf("logged %d", n)
	if err := i.create(ctx, name); err != nil {
		return 0, err
	}
	return until(ctx, func() (bool, error) {
		var page json.RawMessage
		err := i.call(ctx, "GET", "/log?per_page=5", nil, &page)
		return strings.Contains(string(page), name), err
	})
}

func (i *installation) untilArrived(ctx context.Context, n int, arrived <-chan string) (time.Duration, error) {
	name := fmt.Sprintf("arrived %d", n)
	if err := i.create(ctx, name); err != nil {
		return 0, err
	}
	began := time.Now()
	for timeout := time.After(waitTimeout); ; {
		select {
		case body := <-arrived:
			if strings.Contains(body, name) {
				return time.Since(began), nil
			}
		case <-timeout:
			return 0, fmt.Errorf("nothing came in %v", waitTimeout)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (i *installation) untilCounts(ctx context.Context, n int) (time.Duration, error) {
	on := n%2 == 0
	value := "0"
	if on {
		value = "1"
	}
	edit := map[string]any{"settings": []any{map[string]any{"slug": "security.key_in_query", "value": value}}}
	if err := i.choose(ctx, "security.key_in_query", edit); err != nil {
		return 0, err
	}
	return until(ctx, func() (bool, error) {
		response, err := http.Get(i.url + "/auth/key/current?key=" + i.key)
		if err != nil {
			return false, err
		}
		response.Body.Close()
		return (response.StatusCode == http.StatusOK) == on, nil
	})
}

// choose edits the group of settings that has the slug.
func (i *installation) choose(ctx context.Context, slug string, edit any) error {
	var groups []struct {
		ID       int64
		Settings []struct{ Slug string }
	}
	if err := i.call(ctx, "GET", "/setting-group", nil, &groups); err != nil {
		return err
	}
	for _, group := range groups {
		for _, one := range group.Settings {
			if one.Slug == slug {
				return i.call(ctx, "PATCH", fmt.Sprintf("/setting-group/%d", group.ID), edit, nil)
			}
		}
	}
	return fmt.Errorf("no group has the setting %s", slug)
}

func until(ctx context.Context, is func() (bool, error)) (time.Duration, error) {
	for began := time.Now(); ; {
		if done, err := is(); err != nil || done {
			return time.Since(began), err
		}
		if time.Since(began) > waitTimeout {
			return 0, fmt.Errorf("it is not so after %v", waitTimeout)
		}
		if err := rest(ctx, lookInterval); err != nil {
			return 0, err
		}
	}
}

// call asks the API, and reads its answer into out where that is not nil.
func (i *installation) call(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, i.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+i.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
