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
	pollInterval = 2 * time.Millisecond
	// changeInterval is the pause before each change.
	changeInterval = 700 * time.Millisecond
)

// measureDelivery prints how long changes take to reach the log, a webhook and the gateway.
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
		label   string
		measure func(context.Context, int) (time.Duration, error)
	}{
		{"in the log", i.measureLog},
		{"at a webhook", func(ctx context.Context, n int) (time.Duration, error) { return i.measureWebhook(ctx, n, arrived) }},
		{"effective as a setting", i.measureSetting},
	} {
		var elapsed []time.Duration
		for n := range rounds {
			if err := rest(ctx, changeInterval+time.Duration(n)*13*time.Millisecond); err != nil {
				return err
			}
			d, err := kind.measure(ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.label, err)
			}
			elapsed = append(elapsed, d)
		}
		slices.Sort(elapsed)
		fmt.Printf("from the response until it is %-24s median %5d ms, 90 %% within %5d ms, all within %5d ms\n", kind.label,
			elapsed[len(elapsed)/2].Milliseconds(), elapsed[len(elapsed)*9/10].Milliseconds(), elapsed[len(elapsed)-1].Milliseconds())
	}
	return nil
}

func (i *installation) create(ctx context.Context, name string) error {
	return i.call(ctx, "POST", "/port-speed", map[string]any{"name": name, "speed": 1000}, nil)
}

// measureLog creates an item, and returns the time until the log has it.
func (i *installation) measureLog(ctx context.Context, n int) (time.Duration, error) {
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

// measureWebhook creates an item, and returns the time until a webhook receives it.
func (i *installation) measureWebhook(ctx context.Context, n int, arrived <-chan string) (time.Duration, error) {
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
			return 0, fmt.Errorf("the webhook received nothing in %v", waitTimeout)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// measureSetting edits a setting, and returns the time until the gateway obeys it.
func (i *installation) measureSetting(ctx context.Context, n int) (time.Duration, error) {
	on := n%2 == 0
	value := "0"
	if on {
		value = "1"
	}
	edit := map[string]any{"settings": []any{map[string]any{"slug": "security.key_in_query", "value": value}}}
	if err := i.editSetting(ctx, "security.key_in_query", edit); err != nil {
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

// editSetting edits the group of settings that has the slug.
func (i *installation) editSetting(ctx context.Context, slug string, edit any) error {
	var groups []struct {
		ID       int64
		Settings []struct{ Slug string }
	}
	if err := i.call(ctx, "GET", "/setting-group", nil, &groups); err != nil {
		return err
	}
	for _, group := range groups {
		for _, setting := range group.Settings {
			if setting.Slug == slug {
				return i.call(ctx, "PATCH", fmt.Sprintf("/setting-group/%d", group.ID), edit, nil)
			}
		}
	}
	return fmt.Errorf("no group has the setting %s", slug)
}

// until polls until the condition is true, and returns how long that took.
func until(ctx context.Context, condition func() (bool, error)) (time.Duration, error) {
	for began := time.Now(); ; {
		if done, err := condition(); err != nil || done {
			return time.Since(began), err
		}
		if time.Since(began) > waitTimeout {
			return 0, fmt.Errorf("the change has no effect after %v", waitTimeout)
		}
		if err := rest(ctx, pollInterval); err != nil {
			return 0, err
		}
	}
}

// call sends a request to the API, and decodes the response into out unless that is nil.
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
