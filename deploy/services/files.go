package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A file that names the services says of each of them what it says of the service clients, which has nothing of its own: a
// block of lines, a line, or a word in a list. What is missing of a service is copied from there, and stands behind, in a list
// before, what is said of the service system. What a service has beside that is written by hand, and stays.
const (
	template = "clients"
	behind   = "system"
)

// items match, by the files that have some, the first line of what is said of the service named %s.
var items = map[string]string{
	"docker-compose.yml":                       `^ *(- )?(secrets-)?%s(-migrate)?[:/]`,
	"deploy/packages/systemd/ironplane.target": `^Wants=ironplane-service@%s\.service$`,
	"deploy/packages/systemd/sysusers.conf":    `^u ironplane-%s `,
	"deploy/packages/systemd/tmpfiles.conf":    `^d /etc/ironplane/secrets/%s `,
}

// lists are the files with lists of the services' names in one line: a line that has the names of all that were there first.
var lists = []string{
	"README.md", "docker-compose.yml", "deploy/packages/etc/ironplane.env", "deploy/packages/removing.sh",
	"deploy/packages/systemd_test.go",
	"docs/operate/backup.md", "docs/operate/compose.md", "docs/operate/install.md", "docs/understand/mesh.md",
}

var listed = []string{template, "identity", "network", "pxe", behind}

// word matches a service's name that is no part of another word.
func word(name string) *regexp.Regexp {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
}

// addItems adds what is missing of a service to a file's items.
func addItems(file, text, name string) (string, error) {
	first := regexp.MustCompile(fmt.Sprintf(items[file], template))
	for at := 0; ; at++ {
		lines := strings.SplitAfter(text, "\n")
		for at < len(lines) && !first.MatchString(strings.TrimSuffix(lines[at], "\n")) {
			at++
		}
		if at == len(lines) {
			return text, nil
		}
		want := strings.Fields(strings.ReplaceAll(lines[at], template, name))
		if slices.ContainsFunc(lines, func(line string) bool { return slices.Equal(strings.Fields(line), want) }) {
			continue
		}
		last := strings.Fields(strings.ReplaceAll(lines[at], template, behind))
		to := slices.IndexFunc(lines, func(line string) bool { return slices.Equal(strings.Fields(line), last) })
		if to < 0 {
			return "", fmt.Errorf("%s says nothing of %s like %q", file, behind, strings.TrimSpace(lines[at]))
		}
		added := strings.ReplaceAll(strings.Join(lines[at:blockEnd(lines, at)], ""), template, name)
		text = strings.Join(slices.Insert(lines, blockEnd(lines, to), added), "")
	}
}

// blockEnd returns the line behind a block: its first line, those that are indented more, and an empty one.
func blockEnd(lines []string, at int) int {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	end := at + 1
	for end < len(lines) && strings.TrimSpace(lines[end]) != "" && indent(lines[end]) > indent(lines[at]) {
		end++
	}
	if end > at+1 && end < len(lines) && lines[end] == "\n" {
		end++
	}
	return end
}

const environmentFolder = "deploy/packages/etc/"

var port = regexp.MustCompile(`(?:127\.0\.0\.1|\$HOST):[89]4(\d\d)`)

// addToLists adds a service to the lists of a text that it is missing in. Its ports are 84 and 94 with this number behind.
func addToLists(text, name string, number int) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		misses := func(name string) bool { return !word(name).MatchString(line) }
		if !misses(name) || slices.ContainsFunc(listed, misses) {
			continue
		}
		words := strings.Split(line, " ")
		like := slices.IndexFunc(words, word(listed[1]).MatchString)
		to := slices.IndexFunc(words, word(behind).MatchString)
		added := withPorts(strings.ReplaceAll(words[like], listed[1], name), number)
		lines[i] = strings.Join(slices.Insert(words, to, added), " ")
	}
	return strings.Join(lines, "")
}

func withPorts(text string, number int) string {
	return port.ReplaceAllStringFunc(text, func(address string) string {
		return address[:len(address)-2] + fmt.Sprintf("%02d", number)
	})
}

// environment returns the path of a service's environment file, its text where it is to be written, and the number of its
// ports. others are the environment files that there are.
func environment(name string, others map[string]string) (path, text string, number int) {
	path = environmentFolder + name + ".env"
	taken := 0
	for file, has := range others {
		for _, found := range port.FindAllStringSubmatch(has, -1) {
			n, _ := strconv.Atoi(found[1])
			if file == path {
				return path, "", n
			}
			taken = max(taken, n)
		}
	}
	number = taken + 1
	text = strings.ReplaceAll(others[environmentFolder+template+".env"], template, name)
	return path, withPorts(text, number), number
}

// addTopic adds a row on a topic to the table of docs/do/webhooks.md, before the last one.
func addTopic(text, topic string, needed []string) string {
	if strings.Contains(text, "`"+topic+".*`") {
		return text
	}
	what := "none besides"
	if len(needed) > 0 {
		what = "`" + strings.Join(needed, "`, `") + "`"
	}
	lines := strings.SplitAfter(text, "\n")
	last := len(lines) - 1
	for last > 0 && !strings.HasPrefix(lines[last], "| `") {
		last--
	}
	return strings.Join(slices.Insert(lines, last, fmt.Sprintf("| `%s.*` | %s |\n", topic, what)), "")
}
